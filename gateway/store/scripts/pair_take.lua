-- Locks a pair. ARGV: token, id, milliseconds of the lock, of the session timeout.
-- needs pair
local mine, id, timeout = ARGV[1], ARGV[2], tonumber(ARGV[4])
local whose, left = lessee()
if whose then return {'owned', left} end
local r = pair(id)
if not r then
  return {prune(timeout, 1) == 1 and 'missing' or 'nobody'}
end
if not alive(r, timeout, kept()) then
  redis.call('HDEL', key, id)
  return {expired(r) and prune(timeout, 1) == 0 and 'nobody' or 'missing'}
end
if string.byte(r) ~= 70 then
  if token(r) ~= mine then return {'busy'} end
else
  redis.call('HSET', key, id, record('L', mine, time(used(r)), now + tonumber(ARGV[3]), sealed(r)))
end
return {'taken', sealed(r)}
