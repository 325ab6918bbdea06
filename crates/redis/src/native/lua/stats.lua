-- Describes a partition as it is now: counts are kept, not scanned.
--
-- Keys    m f s u o r l g w t T Z
-- Reply   `change`, `past` and `until` if the partition is closed, see `configure`; `bare`, `scheduled`, `ready`, `urgent`, `leased`, `dead`, `next` the earliest instant, `own` the queue's
--         settings, packed, `version` of them, `reg` its registration, `highest` the
--         highest number of a message that was put here, `waiting` in other processes than A.process; `trash` if something was set
--         aside and is not cleared away yet
-- Cost    O(log n)
if not touch() then
  return cmsgpack.pack(out)
end
out.bare = is_bare()
out.scheduled, out.ready = 0, call('ZCARD', P .. 'r')
for _, name in ipairs({ 'f', 's', 'u', 'o' }) do
  local key = P .. name
  local due = call('ZCOUNT', key, '-inf', now)
  out.ready = out.ready + due
  out.scheduled = out.scheduled + call('ZCARD', key) - due
  local first = call('ZRANGE', key, due, due, 'WITHSCORES')[2]
  if first and (not out.next or tonumber(first) < out.next) then
    out.next = tonumber(first)
  end
end
out.urgent = call('ZCOUNT', P .. 'u', '-inf', now) + call('ZCOUNT', P .. 'r', '-inf', '(' .. DEFAULT_PRIORITY)
out.leased = call('ZCARD', P .. 'l')
-- Messages past retention count as gone, though they may still be stored.
out.dead = call('ZCARD', P .. 'g') - (past_retention())
out.own = M[3]
out.version = tonumber(M[7] or 0)
out.partitions_here = setting('partitions')
if M[8] then
  out.change, out.past, out['until'] = M[8], past_partitions(), last_idempotency_key()
end
out.reg = M[2] and tonumber(M[2])
out.highest = M[6] and tonumber(M[6])
out.trash = call('EXISTS', P .. 'Z') == 1
out.waiting = 0
local waiters = call('HGETALL', P .. 'w')
for index = 1, #waiters, 2 do
  if waiters[index] ~= 'at' and waiters[index] ~= A.process then
    local entry = read(waiters[index + 1], 'a field of ' .. P .. 'w')
    if now < entry[2] then
      out.waiting = out.waiting + entry[1]
    end
  end
end
hint()
return cmsgpack.pack(out)
