-- Stores new pairs, all or none. ARGV: token of this call, milliseconds of the
-- session timeout, the most pairs of a client, then id, version and sealed state
-- of each.
-- needs pair
local mine, timeout, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
lessee()
local k = kept()
for i = 4, #ARGV, 2 do
  local r = pair(ARGV[i])
  if r and alive(r, timeout, k) then
    if i == 4 and token(r) == mine then return 'added' end -- it was said before
    return 'exists'
  end
  if r then redis.call('HDEL', key, ARGV[i]) end
end
local coming = (#ARGV - 3) / 2
local held = redis.call('HLEN', key) - redis.call('HEXISTS', key, 'o') - redis.call('HEXISTS', key, 'k')
if held + coming > most and prune(timeout, -1) + coming > most then return 'limit' end
for i = 4, #ARGV, 2 do
  redis.call('HSET', key, ARGV[i], record('F', mine, now, 0, ARGV[i + 1]))
end
live(timeout)
return 'added'
