-- Describes a partition as it is now: counts are kept, not scanned.
--
-- Keys    meta due pending pending-urgent pending-later ready leases dead waiters idempotency idempotency-until purged
-- Reply   `change`, `past` and `until` if the partition is closed, see `configure`; `bare`, `scheduled`, `ready`, `urgent`, `leased`, `dead`, `next` the earliest instant, `own` the queue's
--         settings, packed, `version` of them, `reg` its registration, `highest` the
--         highest number of a message that was put here, `waiting` in other processes than A.process; `trash` if something was set
--         aside and is not cleared away yet
-- Cost    O(log n)
if not touch() then
  return cmsgpack.pack(out)
end
out.bare = is_bare()
out.scheduled, out.ready = 0, call('ZCARD', P .. 'ready')
for _, name in ipairs({ 'due', 'pending', 'pending-urgent', 'pending-later' }) do
  local key = P .. name
  local due = call('ZCOUNT', key, '-inf', now)
  out.ready = out.ready + due
  out.scheduled = out.scheduled + call('ZCARD', key) - due
  local first = call('ZRANGE', key, due, due, 'WITHSCORES')[2]
  if first and (not out.next or tonumber(first) < out.next) then
    out.next = tonumber(first)
  end
end
out.urgent = call('ZCOUNT', P .. 'pending-urgent', '-inf', now) + call('ZCOUNT', P .. 'ready', '-inf', '(' .. DEFAULT_PRIORITY)
out.leased = call('ZCARD', P .. 'leases')
-- Messages past retention count as gone, though they may still be stored.
out.dead = call('ZCARD', P .. 'dead') - (past_retention())
out.own = M[3]
out.version = tonumber(M[7] or 0)
out.partitions_here = setting('partitions')
if M[8] then
  out.change, out.past, out['until'] = M[8], past_partitions(), last_idempotency_key()
end
out.reg = M[2] and tonumber(M[2])
out.highest = M[6] and tonumber(M[6])
out.trash = call('EXISTS', P .. 'purged') == 1
out.waiting = 0
local waiters = call('HGETALL', P .. 'waiters')
for index = 1, #waiters, 2 do
  if waiters[index] ~= 'at' and waiters[index] ~= A.process then
    local entry = read(waiters[index + 1], 'a field of ' .. P .. 'waiters')
    if now < entry[2] then
      out.waiting = out.waiting + entry[1]
    end
  end
end
hint()
return cmsgpack.pack(out)
