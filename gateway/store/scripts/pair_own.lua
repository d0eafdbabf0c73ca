-- Leases a client, or prolongs the lease, and reads a pair. ARGV: token of the
-- lease, id or nothing, milliseconds of the lease, of the session timeout, 1 if
-- the lease is to begin and 0 if it is to go on.
-- needs pair
local mine, id, ms, timeout = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local begin = ARGV[5] == '1'
local whose, left = lessee(mine)
if whose ~= mine then
  if not begin then return {'lost'} end
  if whose then return {'owned', left} end
end
local r = id ~= '' and pair(id)
if r and not alive(r, timeout, kept()) then
  redis.call('HDEL', key, id)
  if prune(timeout, 1) == 0 then return {expired(r) and 'nobody' or 'missing'} end
  r = false
end
if not r and (id ~= '' or begin) and prune(timeout, 1) == 0 then return {'nobody'} end
lease(mine, ms)
live(timeout)
if id == '' then return {'renewed'} end
if not r then return {'missing', 'leased'} end
if string.byte(r) ~= 70 then return {'busy', 'leased'} end
return {'taken', sealed(r)}
