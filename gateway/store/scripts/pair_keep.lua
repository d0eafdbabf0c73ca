-- Deletes pairs of a client and lets the others live from now. ARGV: token of our
-- lease on the client or nothing, milliseconds of the session timeout, ids.
-- needs pair
local timeout = tonumber(ARGV[2])
local whose, left = lessee(ARGV[1])
if whose and whose ~= ARGV[1] then return {'owned', left} end
for i = 3, #ARGV do
  local r = pair(ARGV[i])
  if r then
    if string.byte(r) ~= 70 and alive(r, timeout, 0) then
      redis.call('HSET', key, ARGV[i], 'D' .. string.sub(r, 2))
    else
      redis.call('HDEL', key, ARGV[i])
    end
  end
end
prune(timeout, -1)
local n = 0
for _, field in ipairs(redis.call('HKEYS', key)) do
  if #field == 32 and string.sub(redis.call('HGET', key, field), 1, 1) ~= 'D' then n = n + 1 end
end
if n > 0 then
  redis.call('HSET', key, 'k', now)
  live(timeout)
end
return {'kept', n}
