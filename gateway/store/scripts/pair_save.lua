-- Unlocks a pair and writes its new state. ARGV: token, id, milliseconds of the
-- session timeout, the version that was taken, the new version and sealed state or
-- nothing if the pair was not used.
-- needs pair
local mine, id, timeout, fresh = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[5]
local r = pair(id)
if not r or string.sub(r, 2, 33) ~= e or token(r) ~= mine then return 'gone' end
if string.byte(r) == 70 then -- it was said before
  return (fresh == '' or version(r) == string.sub(fresh, 1, 8)) and 'saved' or 'gone'
end
if till(r) <= now or fresh ~= '' and version(r) ~= ARGV[4] then
  redis.call('HDEL', key, id)
  return 'gone'
end
if string.byte(r) == 68 then
  redis.call('HDEL', key, id)
  return 'saved'
end
if fresh == '' then
  redis.call('HSET', key, id, record('F', mine, time(used(r)), 0, sealed(r)))
else
  redis.call('HSET', key, id, record('F', mine, now, 0, fresh))
end
live(timeout)
return 'saved'
