-- Takes each key that nobody has for the node. KEYS lie in one hash slot.
-- ARGV: lease in ms, node id, target, then for each key the number of its token.
-- A key of this node's is taken over: its answer was lost on the way.
-- Answers for each key '=' (taken) or the value that another node wrote.
-- needs owner
local mine = ARGV[2] .. '-'
local out = {}
for i, key in ipairs(KEYS) do
	local v = owner(key, mine)
	if not v or string.sub(v, 1, #mine) == mine then
		redis.call('SET', key, mine .. ARGV[3 + i] .. ' ' .. ARGV[3], 'PX', ARGV[1])
		out[i] = '='
	else
		out[i] = v
	end
end
return out
