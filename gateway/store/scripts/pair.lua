-- What the scripts of the pair store share. A client is one hash, KEYS[1], so that
-- whatever happens to keys happens to all of it at once. Its fields:
--
--   a pair's id, 32 hex digits: flag (F free, L locked, D locked and dropped),
--     epoch (32), token of the last holder (16), last use (8), end of the lock (8),
--     version (8), sealed state
--   o: who leases the client: epoch (32), token (16), end (8)
--   k: the last keepalive
--
-- Times are milliseconds of this server's clock. A pair whose lock has ended, or
-- that another epoch wrote, is dead: its state may be older than what was used.
-- Whatever else is here nobody of us wrote: it is deleted where it is met.
-- needs epoch
local key = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local e = epoch()

local function time(s) return (struct.unpack('>d', s)) end
local function pack(t) return struct.pack('>d', t) end

local function record(flag, token, used, till, sealed)
  return flag .. e .. token .. pack(used) .. pack(till) .. sealed
end

local function sealed(r) return string.sub(r, 66) end
local function version(r) return string.sub(r, 66, 73) end
local function token(r) return string.sub(r, 34, 49) end
local function used(r) return string.sub(r, 50, 57) end
local function till(r) return time(string.sub(r, 58, 65)) end

-- get returns a field, false if there is none. It is the first thing that every
-- script asks of the key, which is ours only if it is a hash.
local function get(field)
  local v = redis.pcall('HGET', key, field)
  if type(v) ~= 'table' then return v end
  if not string.find(v.err, 'WRONGTYPE', 1, true) then
    return redis.call('HGET', key, field) -- refused: the call fails of that
  end
  redis.call('DEL', key)
  damaged = damaged + 1
  return false
end

-- sane tells of a number that it can be a time: Lua's comparisons pass over what is
-- no number, and what never ends would never go.
local function sane(t) return t ~= nil and t >= 0 and t < 2 ^ 53 end

-- ours tells whether a value is a pair's. None of ours is near that long, and what
-- is far longer the connection would not let through.
local function ours(r)
  if #r <= 73 or #r > 131072 then return false end
  local flag = string.byte(r)
  if flag ~= 70 and flag ~= 76 and flag ~= 68 then return false end
  local used, till = struct.unpack('>dd', r, 50)
  return sane(used) and sane(till)
end

-- pair returns a pair's record, false if there is none.
local function pair(id)
  local r = get(id)
  if not r or ours(r) then return r end
  redis.call('HDEL', key, id)
  damaged = damaged + 1
  return false
end

-- alive tells whether a pair can still be used, now or when its holder is done.
local function alive(r, timeout, kept)
  if string.sub(r, 2, 33) ~= e then return false end
  if string.byte(r) ~= 70 then return till(r) > now end
  return math.max(time(used(r)), kept) + timeout > now
end

-- expired tells of a pair that is dead whether it only was not used for too long.
-- With the last of those the client is gone, as if it had never been here; whoever
-- asks for a pair that died in another way is told that it is the pair.
local function expired(r)
  return string.byte(r) == 70 and string.sub(r, 2, 33) == e
end

local function kept()
  local k = get('k')
  if not k then return 0 end
  local t = tonumber(k)
  if sane(t) then return t end
  redis.call('HDEL', key, 'k')
  damaged = damaged + 1
  return 0
end

-- prune deletes what is dead or foreign, until it meets a living pair if one is enough, and
-- returns how many live.
local function prune(timeout, enough)
  local cursor, n, k = '0', 0, kept()
  repeat
    local page = redis.call('HSCAN', key, cursor, 'COUNT', 64)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local field, r = page[2][i], page[2][i + 1]
      if #field == 32 and ours(r) then
        if alive(r, timeout, k) then
          n = n + 1
          if n == enough then return n end
        else
          redis.call('HDEL', key, field)
        end
      elseif field ~= 'o' and field ~= 'k' then
        redis.call('HDEL', key, field)
        damaged = damaged + 1
      end
    end
  until cursor == '0'
  return n
end

-- lessee returns the token of who leases the client, and the milliseconds left,
-- nil if nobody does. A lease that has ended without being given back was its
-- holder's end, or it is cut off: it may have used any of the states here, so all
-- of them go. So they do if nobody can say whose the lease is. mine is who may be
-- late.
local function lessee(mine)
  local o = get('o')
  if not o then return nil, 0 end
  if #o ~= 56 or not sane(time(string.sub(o, 49))) then
    redis.call('DEL', key)
    damaged = damaged + 1
    return nil, 0
  end
  local whose, left = string.sub(o, 33, 48), time(string.sub(o, 49, 56)) - now
  if string.sub(o, 1, 32) == e and (left > 0 or whose == mine) then return whose, left end
  redis.call('DEL', key)
  return nil, 0
end

local function lease(whose, ms)
  redis.call('HSET', key, 'o', e .. whose .. pack(now + ms))
end

-- locks is the longest that a lock or lease lasts: the hash outlives it.
local function live(timeout)
  redis.call('PEXPIRE', key, timeout + 60000)
end
