-- Before the scripts of the reliable consumer. Their keys:
-- KEYS  1 destination  2 inbox  3 leases  4 leased  5 dead  6 attempts (the beginning of a payload's own key)
--       7 pending  8 timeouts  9 channel

local DAY = 24 * 60 * 60 * 1000

-- Counts a failed attempt of a payload, which then goes back to the front, or is dead with the last allowed one.
-- With a packed element it is offered again after `delay` instead.
local function fail(payload, reason, most, packed, delay)
  local counted = KEYS[6] .. redis.sha1hex(payload)
  local attempts = redis.call('INCR', counted)
  if most > 0 and attempts >= most then
    redis.call('RPUSH', KEYS[5], attempts .. '\0' .. reason .. '\0' .. payload)
    redis.call('DEL', counted)
    return 'dead'
  end
  redis.call('PEXPIRE', counted, ms_text(DAY + (delay or 0)))
  if packed and delay > 0 then
    add_pending(KEYS[7], KEYS[8], KEYS[9], { { packed, due_of('in', delay, now_ms()) } })
    return 'scheduled'
  end
  redis.call('LPUSH', KEYS[1], payload)
  return 'ready'
end

-- Ends leases that ran out, at most a hundred.
local function reap(now, most)
  local lapsed = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ms_text(now), 'LIMIT', 0, 100)
  for _, token in ipairs(lapsed) do
    local payload = redis.call('HGET', KEYS[4], token)
    if payload then fail(payload, 'lease ran out', most) end
    redis.call('HDEL', KEYS[4], token)
    redis.call('ZREM', KEYS[3], token)
  end
  return #lapsed
end
