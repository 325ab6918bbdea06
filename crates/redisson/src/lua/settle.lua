-- Ends or extends a lease.
-- KEYS  as in claim_common.lua
-- ARGV  1 token  2 'ack', 'extend', 'release', 'retry' or 'bury'
--       extend: 3 lease in ms     retry: 3 delay in ms  4 attempts allowed, 0 for no limit  5 reason  6 packed element
--       bury: 3 reason
-- reply 'lost' if the lease is not current; else 'acked', 'extended', 'ready', 'scheduled' or 'dead'
-- cost  O(log N)
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[3], 'zset', KEYS[4], 'hash', KEYS[5], 'list', KEYS[7], 'list',
  KEYS[8], 'zset')
if wrong then return wrong end
local now, token, action = now_ms(), ARGV[1], ARGV[2]
local deadline = tonumber(redis.call('ZSCORE', KEYS[3], token) or 0)
local payload = redis.call('HGET', KEYS[4], token)
if not payload or deadline <= now then return unchanged('lost') end
if action == 'extend' then
  wrong = wrong_instant(now + tonumber(ARGV[3]))
  if wrong then return wrong end
  write_though_full()
  redis.call('ZADD', KEYS[3], ms_text(now + tonumber(ARGV[3])), token)
  return keep('extended')
end
local due
if action == 'retry' and tonumber(ARGV[3]) > 0 then due = due_of('in', ARGV[3], now) end
wrong = due and wrong_instant(due) or wrong_count(payload)
if wrong then return wrong end
local counted, state = count_key(payload), 'acked'
-- The memory that it needs is freed with the lease.
write_though_full()
if action == 'ack' then
  redis.call('DEL', counted)
elseif action == 'release' then
  redis.call('LPUSH', KEYS[1], payload)
  state = 'ready'
elseif action == 'retry' then
  state = fail(payload, ARGV[5], tonumber(ARGV[4]), ARGV[6], due, now)
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
return keep(state)
