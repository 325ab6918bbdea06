-- Ends leases that ran out, and gives back what lies in the inbox for too long: whoever waited for it is gone. It may
-- be given back at any time, since a claim looks into the destination after the inbox.
-- KEYS  as in claim_common.lua
-- ARGV  1 attempts allowed, 0 for any number  2 how long the inbox may be seen not to be empty, in ms  3 most of each
--       4 most bytes of each, but for its first
-- reply {how many leases were ended, how many payloads were given back, whether there may be more}
-- cost  O(log N) a lease
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
-- A clock that was set back: it is seen anew.
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
