-- Shows that scripts run here and may write. KEYS[1] is nobody's key, ARGV[1] its
-- life in milliseconds.
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return 'sluice'
