-- Before every script: server time, and checks that come before the first write, since Redis has no rollback.

-- Microseconds on this server's clock. Where it stands still during a script, the script's time is unknown.
local function time_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- Milliseconds on this server's clock, rounded down: an element with this instant is due.
local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- An error if `key` exists and has a type other than `wanted`.
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

-- An error about a foreign value in a key of ours.
local function not_ours(key, what)
  return redis.error_reply('WRONGTYPE ' .. key .. ' holds no ' .. what .. ' of ours')
end

-- A number of milliseconds as text, without an exponent.
local function ms_text(ms)
  return string.format('%.0f', ms)
end

-- The instant given by `kind` ('in' or 'at') and `ms`. A delay starts at the next whole millisecond, so that nothing
-- is early.
local function due_of(kind, ms, now)
  if kind == 'at' then return tonumber(ms) end
  return now + 1 + tonumber(ms)
end

local LAST = 253402300799999

-- An error if `ms` is not an instant up to the end of the year 9999.
local function wrong_instant(ms)
  if not (ms >= 0 and ms <= LAST) then return redis.error_reply('DUE ' .. ms_text(ms)) end
end

-- Adds packed elements, each {member, due}, to `pending` and `timeouts`, and publishes a new first instant.
local function add_pending(pending, timeouts, channel, elements)
  local before = redis.call('ZRANGE', timeouts, 0, 0)[1]
  for _, element in ipairs(elements) do
    redis.call('ZADD', timeouts, ms_text(element[2]), element[1])
    redis.call('RPUSH', pending, element[1])
  end
  local head = redis.call('ZRANGE', timeouts, 0, 0, 'WITHSCORES')
  if head[1] ~= before then redis.call('PUBLISH', channel, ms_text(tonumber(head[2]))) end
end

-- Removes an element from both, searching from the end of the list given by `count`. Returns whether it was in either.
local function take_out(pending, timeouts, member, count)
  local scheduled = redis.call('ZREM', timeouts, member)
  local listed = redis.call('LREM', pending, count, member)
  return scheduled + listed > 0
end
