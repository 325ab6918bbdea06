-- Ends lapsed leases, and gives back payloads that have been in the inbox for too long: the consumer that waited for
-- them is gone. They may be given back at any time, since a claim reads the destination after the inbox.
-- KEYS  as in claim_common.lua
-- ARGV  1 attempts allowed, 0 for no limit  2 how long the inbox may be seen non-empty, in ms  3 most of each
--       4 most bytes of each, not counting the first
-- reply {number of leases ended, number of payloads given back, whether there may be more}
-- cost  O(log N) per lease
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'list', KEYS[3], 'zset', KEYS[4], 'hash', KEYS[5], 'list',
  KEYS[10], 'string')
if wrong then return wrong end
local now, patience, most, bytes = now_ms(), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local tokens, payloads, are_more = lapsed(now, most, bytes)
wrong = wrong_lapsed(payloads)
if wrong then return wrong end
local waiting = redis.call('LLEN', KEYS[2])
local since
since, wrong = inbox_since()
if wrong then return wrong end
if #tokens + waiting == 0 and not since then return unchanged({ 0, 0, 0 }) end
write_though_full()
reap(tokens, payloads, tonumber(ARGV[1]))
-- If the clock was set back, the time starts anew.
if not since or since > now then since = now end
local given = 0
if waiting > 0 and now - since >= patience then
  while given < math.min(waiting, most) and bytes > 0 do
    bytes = bytes - #redis.call('LMOVE', KEYS[2], KEYS[1], 'RIGHT', 'LEFT')
    given = given + 1
  end
end
if given == waiting then
  redis.call('DEL', KEYS[10])
else
  redis.call('SET', KEYS[10], ms_text(since), 'PX', DAY)
end
local reply = { #tokens, given, (are_more or given > 0 and given < waiting) and 1 or 0 }
return #tokens + given > 0 and keep(reply) or unchanged(reply)
