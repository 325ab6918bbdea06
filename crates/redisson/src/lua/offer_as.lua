-- Offers one element under an id of the caller's, which is remembered until some time after its instant.
-- KEYS  1 pending  2 timeouts  3 channel  4 the offer's own key
-- ARGV  1 'in' or 'at'  2 milliseconds  3 the packed element
--       4 'keep': a known offer under this id stays; 'replace': its pending element is removed
--       5 how long after the instant the id is remembered, in ms
-- reply {'offered' or 'known' or 'replaced', instant in ms as text, or '' for a known one that is not pending}
-- cost  O(log N); a replacement searches the pending list from its end
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset', KEYS[4], 'string')
if wrong then return wrong end
local now = now_ms()
local due = due_of(ARGV[1], ARGV[2], now)
wrong = wrong_instant(due)
if wrong then return wrong end
local known = redis.call('GET', KEYS[4])
if known and not read_element(known) then return not_ours(KEYS[4], 'element') end
local standing, at
if known then standing, at = scheduled(KEYS[2], known) end
if known and ARGV[4] == 'keep' then
  return unchanged({ 'known', at and ms_text(tonumber(at)) or '' })
end
-- The new element is added before the old one is removed: a full Redis refuses that, and nothing is changed.
add_pending(KEYS[1], KEYS[2], KEYS[3], { { ARGV[3], due } })
if standing then take_out(KEYS[1], KEYS[2], standing, -1) end
redis.call('SET', KEYS[4], ARGV[3], 'PX', ms_text(math.max(due - now, 0) + tonumber(ARGV[5])))
return keep({ standing and 'replaced' or 'offered', ms_text(due) })
