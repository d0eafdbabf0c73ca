-- Deletes pairs whose last token is ours. ARGV: token, ids.
-- needs pair
local n = 0
for i = 2, #ARGV do
  local r = pair(ARGV[i])
  if r and token(r) == ARGV[1] then
    n = n + redis.call('HDEL', key, ARGV[i])
  end
end
return n
