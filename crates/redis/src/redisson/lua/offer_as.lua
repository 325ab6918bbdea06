-- Offers one element under an id of the caller's, which is remembered until some time after its instant.
-- KEYS  1 pending  2 timeouts  3 channel  4 the offer's own key
-- ARGV  1 'in' or 'at'  2 milliseconds  3 the packed element
--       4 'keep': an offer under this id that is known stands; 'replace': its pending element goes
--       5 how long after the instant the id is remembered, in ms
-- reply {'offered' or 'known' or 'replaced', instant in ms as text, or '' for a known one that is not pending}
-- cost  O(log N); a replacement searches the pending list from its end
local wrong = wrong_type(KEYS[1], 'list') or wrong_type(KEYS[2], 'zset') or wrong_type(KEYS[4], 'string')
if wrong then return wrong end
local now = now_ms()
local due = due_of(ARGV[1], ARGV[2], now)
if due > LAST then return redis.error_reply('DUE ' .. ms_text(due)) end
local known = redis.call('GET', KEYS[4])
if known and ARGV[4] == 'keep' then
  local at = redis.call('ZSCORE', KEYS[2], known)
  return { 'known', at and ms_text(tonumber(at)) or '' }
end
local replaced = known and take_out(KEYS[1], KEYS[2], known, -1)
add_pending(KEYS[1], KEYS[2], KEYS[3], { { ARGV[3], due } })
redis.call('SET', KEYS[4], ARGV[3], 'PX', ms_text(math.max(due - now, 0) + tonumber(ARGV[5])))
return { replaced and 'replaced' or 'offered', ms_text(due) }
