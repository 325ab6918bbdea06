-- Before every script: server time, and checks that come before the first write, since Redis rolls nothing back.

-- Microseconds by this server's clock; where it stands still in a script, nothing is known of what that took.
local function time_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Milliseconds by this server's clock, rounded down: what is due at it is due.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- An error if `key` is there and is no `wanted`.
local function wrong_type(key, wanted)
  local is = redis.call('TYPE', key).ok
  if is ~= 'none' and is ~= wanted then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. is .. ', not a ' .. wanted)
  end
end

-- The same for several: a key, its type, a key, its type.
local function wrong_types(...)
  local all = { ... }
  for at = 1, #all, 2 do
    local wrong = wrong_type(all[at], all[at + 1])
    if wrong then return wrong end
  end
end

-- An error about what somebody else has put into a key of ours.
local function not_ours(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' holds no ' .. what .. ' of ours')
end

-- A number of milliseconds as text: never with an exponent.
local function ms_text(ms)
  return string.format('%.0f', ms)
end

-- The instant that `kind` ('in' or 'at') and `ms` say. A delay runs from the next whole millisecond, so that
-- nothing comes early.
local function due_of(kind, ms, now)
  if kind == 'at' then return tonumber(ms) end
  return now + 1 + tonumber(ms)
end

local LAST = 253402300799999

-- An error if `ms` is no instant up to the end of the year 9999.
local function wrong_instant(ms)
  if not (ms >= 0 and ms <= LAST) then return redis.error_reply('DUE ' .. ms_text(ms)) end
end

-- Adds packed elements, each {member, due}, to `pending` and `timeouts`; tells the channel a new first instant.
local function add_pending(pending, timeouts, channel, elements)
  local before = redis.call('ZRANGE', timeouts, 0, 0)[1]
  for _, element in ipairs(elements) do
    redis.call('ZADD', timeouts, ms_text(element[2]), element[1])
    redis.call('RPUSH', pending, element[1])
  end
  local head = redis.call('ZRANGE', timeouts, 0, 0, 'WITHSCORES')
  if head[1] ~= before then redis.call('PUBLISH', channel, ms_text(tonumber(head[2]))) end
end

-- Takes an element out of both; looks from the end of the list that `count` says. Whether it was in either.
local function take_out(pending, timeouts, member, count)
  local scheduled = redis.call('ZREM', timeouts, member)
  local listed = redis.call('LREM', pending, count, member)
  return scheduled + listed > 0
end
