-- Ends leases that ran out, at most 25, then leases what is ready.
-- KEYS  as in claim_common.lua
-- ARGV  1 lease in ms  2 attempts allowed, 0 for any number  3... a token for each payload wanted
-- reply {how many leases were ended, token, attempt, deadline in ms as text, payload, token, ...}
-- cost  O(log N) a payload
local reply = {}
if repeated then
  -- What it leased then and holds still.
  reply[1] = repeated[1]
  for at = 2, #repeated, 3 do
    local payload = redis.call('HGET', KEYS[4], repeated[at])
    if payload then
      for part = at, at + 2 do reply[#reply + 1] = repeated[part] end
      reply[#reply + 1] = payload
    end
  end
  return reply
end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'list', KEYS[3], 'zset', KEYS[4], 'hash', KEYS[5], 'list',
  KEYS[10], 'string')
if wrong then return wrong end
local now, wanted = now_ms(), #ARGV - 2
local deadline = now + tonumber(ARGV[1])
wrong = wrong_instant(deadline)
if wrong then return wrong end
deadline = ms_text(deadline)
local tokens, payloads = lapsed(now, 25)
local received = redis.call('LRANGE', KEYS[2], 0, wanted - 1)
wrong = wrong_lapsed(payloads) or wrong_counts(received)
  or wrong_counts(redis.call('LRANGE', KEYS[1], 0, wanted - 1)) or select(2, inbox_since())
if wrong then return wrong end
write_though_full()
reap(tokens, payloads, tonumber(ARGV[2]))
if #received > 0 then redis.call('DEL', KEYS[10]) end
local kept = { #tokens }
reply[1] = #tokens
for at = 3, #ARGV do
  local from = at - 2 <= #received and KEYS[2] or KEYS[1]
  local payload = redis.call('LPOP', from)
  if not payload then break end
  redis.call('HSET', KEYS[4], ARGV[at], payload)
  redis.call('ZADD', KEYS[3], deadline, ARGV[at])
  local attempt = tonumber(redis.call('GET', count_key(payload)) or 0) + 1
  for _, part in ipairs({ ARGV[at], attempt, deadline }) do
    kept[#kept + 1] = part
    reply[#reply + 1] = part
  end
  reply[#reply + 1] = payload
end
if #kept > 1 or #tokens > 0 then keep(kept) end
return reply
