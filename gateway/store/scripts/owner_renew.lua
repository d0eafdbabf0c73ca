-- Prolongs each lease that is still the node's. KEYS lie in one hash slot.
-- ARGV: lease in ms, node id, then for each key the number of its token.
-- Answers for each key '=' (prolonged), '' (there is none, or one of another
-- token of this node: to be claimed again) or the value that another node wrote.
-- needs owner
local mine = ARGV[2] .. '-'
local out = {}
for i, key in ipairs(KEYS) do
	local v = owner(key, mine)
	local token = mine .. ARGV[2 + i] .. ' '
	if v and string.sub(v, 1, #token) == token then
		redis.call('PEXPIRE', key, ARGV[1])
		out[i] = '='
	elseif not v or string.sub(v, 1, #mine) == mine then
		out[i] = ''
	else
		out[i] = v
	end
end
return out
