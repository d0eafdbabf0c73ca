-- typed deletes what is of another type than the key's: it is nobody's of ours, and
-- every command of ours would fail on it. damaged counts such (redis_script.go).
local function typed(name, want)
  local kind = redis.call('TYPE', name).ok
  if kind ~= want and kind ~= 'none' then
    redis.call('DEL', name)
    damaged = damaged + 1
  end
end
