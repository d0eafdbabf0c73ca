-- Tells who has each key. KEYS lie in one hash slot. ARGV: node id, then for each
-- key the number of the node's last token.
-- A key of this node's, which asks because it does not know of one, is removed; one
-- with a later token is another claim's, made since: this call is late.
-- Answers for each key '' (nobody) or the value that another node wrote.
-- needs owner
local mine = ARGV[1] .. '-'
local out = {}
for i, key in ipairs(KEYS) do
	local v = owner(key, mine)
	if not v then
		out[i] = ''
	elseif string.sub(v, 1, #mine) == mine then
		if tonumber(string.match(v, '^%d+', #mine + 1)) <= tonumber(ARGV[1 + i]) then redis.call('DEL', key) end
		out[i] = ''
	else
		out[i] = v
	end
end
return out
