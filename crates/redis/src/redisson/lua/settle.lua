-- Ends or moves a lease.
-- KEYS  as in claim_common.lua
-- ARGV  1 token  2 'ack', 'extend', 'release', 'retry' or 'bury'
--       extend: 3 lease in ms     retry: 3 delay in ms  4 attempts allowed, 0 for any  5 reason  6 packed element
--       bury: 3 reason
-- reply 'lost' if the lease is not in force; else 'acked', 'extended', 'ready', 'scheduled' or 'dead'
-- cost  O(log N)
local wrong = wrong_type(KEYS[1], 'list') or wrong_type(KEYS[5], 'list') or wrong_type(KEYS[7], 'list')
  or wrong_type(KEYS[8], 'zset')
if wrong then return wrong end
local now, token, action = now_ms(), ARGV[1], ARGV[2]
local deadline = tonumber(redis.call('ZSCORE', KEYS[3], token) or 0)
local payload = redis.call('HGET', KEYS[4], token)
if not payload or deadline <= now then return 'lost' end
if action == 'extend' then
  redis.call('ZADD', KEYS[3], ms_text(now + tonumber(ARGV[3])), token)
  return 'extended'
end
local counted, state = KEYS[6] .. redis.sha1hex(payload), 'acked'
if action == 'ack' then
  redis.call('DEL', counted)
elseif action == 'release' then
  redis.call('LPUSH', KEYS[1], payload)
  state = 'ready'
elseif action == 'retry' then
  state = fail(payload, ARGV[5], tonumber(ARGV[4]), ARGV[6], tonumber(ARGV[3]))
elseif action == 'bury' then
  local attempts = tonumber(redis.call('GET', counted) or 0) + 1
  redis.call('RPUSH', KEYS[5], attempts .. '\0' .. ARGV[3] .. '\0' .. payload)
  redis.call('DEL', counted)
  state = 'dead'
else
  return redis.error_reply('ERR no such action')
end
redis.call('ZREM', KEYS[3], token)
redis.call('HDEL', KEYS[4], token)
return state
