-- Ends leases that ran out, then leases what is ready.
-- KEYS  as in claim_common.lua
-- ARGV  1 lease in ms  2 attempts allowed, 0 for any number  3... a token for each payload wanted
-- reply {earliest deadline in ms as text or '', reaped, token, attempt, deadline in ms as text, payload, token, ...}
-- cost  O(log N) a payload
local wrong = wrong_type(KEYS[1], 'list') or wrong_type(KEYS[2], 'list') or wrong_type(KEYS[3], 'zset')
  or wrong_type(KEYS[4], 'hash') or wrong_type(KEYS[5], 'list') or wrong_type(KEYS[7], 'list')
  or wrong_type(KEYS[8], 'zset')
if wrong then return wrong end
local now = now_ms()
local reply = { '', reap(now, tonumber(ARGV[2])) }
local deadline = ms_text(now + tonumber(ARGV[1]))
for at = 3, #ARGV do
  local from = redis.call('EXISTS', KEYS[2]) == 1 and KEYS[2] or KEYS[1]
  local payload = redis.call('LINDEX', from, 0)
  if not payload then break end
  -- It is in the lease before it is out of the list: a full Redis refuses the first of these.
  redis.call('HSET', KEYS[4], ARGV[at], payload)
  redis.call('ZADD', KEYS[3], deadline, ARGV[at])
  redis.call('LPOP', from)
  local failed = tonumber(redis.call('GET', KEYS[6] .. redis.sha1hex(payload)) or 0)
  reply[#reply + 1] = ARGV[at]
  reply[#reply + 1] = failed + 1
  reply[#reply + 1] = deadline
  reply[#reply + 1] = payload
end
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
if first[2] then reply[1] = ms_text(tonumber(first[2])) end
return reply
