-- Says that the node is alive, or with 'leave' that it is not, and counts those
-- that are, all by this server's clock. KEYS: the sorted set of nodes.
-- ARGV: node id, ms after which a silent node is dead, 'beat' or 'leave'.
-- Entries of the future are another server's, from before a failover: who is
-- alive comes back with its next beat.
-- Whatever else lies there nobody of us wrote.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'zset' and kind ~= 'none' then
	redis.call('DEL', KEYS[1])
	damaged = damaged + 1
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ARGV[3] == 'beat' then
	redis.call('ZADD', KEYS[1], now, ARGV[1])
else
	redis.call('ZREM', KEYS[1], ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
