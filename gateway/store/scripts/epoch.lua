-- epoch names the one continuous history of data that this server has: its
-- process, and what it replicates since it became a master. A process that was
-- demoted and promoted again may have gone back, and keeps its run_id; its
-- master_replid is another then.
local function epoch()
  return string.sub(string.match(redis.call('INFO', 'server'), 'run_id:(%x+)'), 1, 16) ..
    string.sub(string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)'), 1, 16)
end
