-- Ends the leases of a session which has ended.
--
-- Keys    meta records bodies headers keys session-leases leases pending pending-urgent pending-later expiries dead dead-by-due dead-keys waiters
-- A.process its id; A.max how many at a time; A.release it ends in order: its messages are given back, and no attempt is spent
-- Reply   `left`: whether there are more; `bare`
-- Cost    O(log n) a message
write_though_full()
local members = call('ZRANGEBYLEX', P .. 'session-leases', '[' .. A.process, '[' .. A.process .. string.rep('\255', 17), 'LIMIT', 0, A.max)
local held = {}
for index, member in ipairs(members) do
  local r = load(string.sub(member, 9))
  held[index] = r and r.s == 2 and r.B == A.process and r
end
know_all()
know_zset('leases')
know_zset('expiries')
for index, member in ipairs(members) do
  local r = held[index]
  if r then
    if A.release and r.D > now then
      unplace_leased(r)
      r.r = (r.r or 0) + 1
      pend(r)
      note_ready(r, now)
      save(r)
    else
      -- A lease whose deadline has passed ended then.
      lapse(r, math.min(r.D, now))
    end
  else
    call('ZREM', P .. 'session-leases', member)
  end
end
out.left = #members == A.max
hint()
return cmsgpack.pack(out)
