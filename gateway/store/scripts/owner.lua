-- What the scripts about owners share. A lease is one string, with an end:
--
--   node id '-' number of the token ' ' target
--
-- owner returns the lease under a key, false if there is none. What is no lease
-- nobody would ever renew or give up: it is deleted. mine is how those of the node
-- that asks begin, which sees to their end itself.
local function owner(key, mine)
	local v = redis.pcall('GET', key)
	if type(v) == 'table' and string.find(v.err, 'WRONGTYPE', 1, true) == nil then
		v = redis.call('GET', key) -- refused: the call fails of that
	end
	if v == false then return false end
	local target = type(v) == 'string' and #v <= 512 and string.match(v, '^%w+%-%d+ ([!-~]+)$')
	if target and #target <= 256
		and (string.sub(v, 1, #mine) == mine or redis.call('PTTL', key) >= 0) then
		return v
	end
	redis.call('DEL', key)
	damaged = damaged + 1
	return false
end
