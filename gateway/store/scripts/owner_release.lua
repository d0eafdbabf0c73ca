-- Removes each lease that is still the node's. KEYS lie in one hash slot.
-- ARGV: node id, then for each key the number of its token.
-- Answers '' for each key.
-- needs owner
local mine = ARGV[1] .. '-'
local out = {}
for i, key in ipairs(KEYS) do
	local v = owner(key, mine)
	local token = mine .. ARGV[1 + i] .. ' '
	if v and string.sub(v, 1, #token) == token then
		redis.call('DEL', key)
	end
	out[i] = ''
end
return out
