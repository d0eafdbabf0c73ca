-- Lets a lock last from now. ARGV: token, id, milliseconds of the lock, of the
-- session timeout.
-- needs pair
local mine, id = ARGV[1], ARGV[2]
local r = pair(id)
if not r or string.byte(r) == 70 or string.sub(r, 2, 33) ~= e or token(r) ~= mine or till(r) <= now then
  return 'gone'
end
redis.call('HSET', key, id, record(string.sub(r, 1, 1), mine, time(used(r)), now + tonumber(ARGV[3]), sealed(r)))
live(tonumber(ARGV[4]))
return 'renewed'
