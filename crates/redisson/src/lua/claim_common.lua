-- Before the scripts of the reliable consumer. Their keys:
-- KEYS  1 destination  2 inbox  3 leases  4 leased  5 dead  6 attempts (the prefix of a payload's own key)
--       7 pending  8 timeouts  9 channel  10 the time since which the inbox has been non-empty

local DAY = 24 * 60 * 60 * 1000

-- The digest covers the whole payload, so it is computed once.
local count_keys = {}
local function count_key(payload)
  local key = count_keys[payload] or KEYS[6] .. redis.sha1hex(payload)
  count_keys[payload] = key
  return key
end

-- An error if the key that counts failed attempts of a payload holds a foreign value.
local function wrong_count(payload)
  local key = count_key(payload)
  local wrong = wrong_type(key, 'string')
  if wrong then return wrong end
  local count = redis.call('GET', key)
  if count and not (string.match(count, '^%d+$') and #count < 16) then return not_ours(key, 'count') end
end

-- The same for several payloads.
local function wrong_counts(payloads)
  for _, payload in ipairs(payloads) do
    local wrong = wrong_count(payload)
    if wrong then return wrong end
  end
end

-- The time since which the inbox has been seen non-empty; or an error if that key holds a foreign value.
local function inbox_since()
  local since = redis.call('GET', KEYS[10])
  if since and not (string.match(since, '^%d+$') and #since < 16) then return nil, not_ours(KEYS[10], 'instant') end
  return since and tonumber(since)
end

-- Counts a failed attempt of a payload. The payload goes back to the front, or is dead after the last allowed attempt.
-- With a packed element it is offered again at `due` instead.
local function fail(payload, reason, most, packed, due, now)
  local counted = count_key(payload)
  local attempts = redis.call('INCR', counted)
  if most > 0 and attempts >= most then
    redis.call('RPUSH', KEYS[5], attempts .. '\0' .. reason .. '\0' .. payload)
    redis.call('DEL', counted)
    return 'dead'
  end
  redis.call('PEXPIRE', counted, ms_text(DAY + (due and due - now or 0)))
  if due then
    add_pending(KEYS[7], KEYS[8], KEYS[9], { { packed, due } })
    return 'scheduled'
  end
  redis.call('LPUSH', KEYS[1], payload)
  return 'ready'
end

-- Lapsed leases, at most `limit`, and with at most `bytes` bytes not counting the first: their tokens and, at the same
-- indexes, their payloads. And whether there may be more.
local function lapsed(now, limit, bytes)
  local found = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ms_text(now), 'LIMIT', 0, limit)
  local tokens = {}
  for at, token in ipairs(found) do
    bytes = bytes - redis.call('HSTRLEN', KEYS[4], token)
    if at > 1 and bytes < 0 then break end
    tokens[at] = token
  end
  local payloads = #tokens > 0 and redis.call('HMGET', KEYS[4], unpack(tokens)) or {}
  return tokens, payloads, #tokens < #found or #found == limit
end

-- An error if the count of one of them is a foreign value.
local function wrong_lapsed(payloads)
  for _, payload in ipairs(payloads) do
    local wrong = payload and wrong_count(payload)
    if wrong then return wrong end
  end
end

-- Ends these leases. Returns the number of payloads that went back to the front of the destination.
local function reap(tokens, payloads, most)
  local back = 0
  for at, token in ipairs(tokens) do
    if payloads[at] and fail(payloads[at], 'lease ran out', most) == 'ready' then back = back + 1 end
    redis.call('HDEL', KEYS[4], token)
    redis.call('ZREM', KEYS[3], token)
  end
  return back
end
