-- Writes the new state of a pair whose client we lease. ARGV: token of the lease,
-- id, milliseconds of the lease, of the session timeout, the version there was, the
-- new version and sealed state; or without the last two deletes the pair.
-- needs pair
local mine, id = ARGV[1], ARGV[2]
if lessee(mine) ~= mine then return 'lost' end
local r = pair(id)
if #ARGV < 6 then
  redis.call('HDEL', key, id)
elseif not r or string.sub(r, 2, 33) ~= e then
  return 'gone'
elseif version(r) == ARGV[5] then
  redis.call('HSET', key, id, record('F', mine, now, 0, ARGV[6]))
elseif version(r) ~= string.sub(ARGV[6], 1, 8) then -- it was not said before either
  return 'gone'
end
lease(mine, tonumber(ARGV[3]))
live(tonumber(ARGV[4]))
return 'saved'
