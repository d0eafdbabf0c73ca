-- epoch names the one continuous history of data that this server has: its
-- process, and what it replicates since it became a master. A process that was
-- demoted and promoted again may have gone back, and keeps its run_id; its
-- master_replid is another then.
local function epoch()
  local server, history = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
  local _, a = string.find(server, 'run_id:', 1, true)
  local _, b = string.find(history, 'master_replid:', 1, true)
  return string.sub(server, a + 1, a + 16) .. string.sub(history, b + 1, b + 16)
end
