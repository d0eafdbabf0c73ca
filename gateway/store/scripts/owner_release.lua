-- Removes each lease that is still the node's. KEYS lie in one hash slot.
-- ARGV: node id, then for each key the number of its token.
-- Answers '' for each key.
local out = {}
for i, key in ipairs(KEYS) do
	local v = redis.pcall('GET', key)
	local token = ARGV[1] .. '-' .. ARGV[1 + i] .. ' '
	if type(v) == 'string' and string.sub(v, 1, #token) == token then
		redis.call('DEL', key)
	end
	out[i] = ''
end
return out
