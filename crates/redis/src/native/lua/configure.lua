-- One step of a change of a queue's settings, in one partition: `configure.rs` and `repartition.rs` list the steps.
--
-- Keys    meta waiters calls; due pending pending-urgent pending-later ready leases dead; idempotency idempotency-until
-- A.next  the change's version. A partition that has a later one is skipped; one that has this one has taken the step
-- A.version the version that the partition must have, where that decides: in the queue's first partition
-- A.keep  leave the settings as they are; else A.own are the new ones, packed, or none
-- A.change closes the partition: the change in progress, packed. Without it, the partition is open
-- A.fixed refuse if there are messages
-- A.past  earlier numbers of partitions, see `idempotency.lua`; none: the stored ones stay
-- A.reg   the queue's registration
-- Reply   `done`, or `changed`: the partition has another number; or `fixed`; or `enter`: register the queue first. Of one that was
--         closed `until`, when its last idempotency key ends, and `past`, its earlier numbers of partitions
-- Cost    O(1)
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end
local version = tonumber(M[7] or 0)
if (A.version and version ~= A.version) or version > A.next then
  out.changed = true
  return cmsgpack.pack(out)
end
if A.reg and not M[2] and is_given_up(A.reg) then
  out.enter = true
  return cmsgpack.pack(out)
end
local is_taken = version == A.next and not A.version
if not is_taken and A.fixed and call('EXISTS', P .. 'due', P .. 'pending', P .. 'pending-urgent', P .. 'pending-later', P .. 'ready', P .. 'leases', P .. 'dead') > 0 then
  out.fixed = true
  return cmsgpack.pack(out)
end
if A.change then
  out.past, out['until'] = past_partitions(), last_idempotency_key()
end
if A.past then
  know_hash('idempotency')
end
if not is_taken then
  call('HSET', P .. 'meta', 'v', 1, 'n', string.format('%.0f', A.next))
  if A.reg and (not M[2] or tonumber(M[2]) < A.reg) then
    call('HSET', P .. 'meta', 'g', A.reg)
  end
  if A.change then
    call('HSET', P .. 'meta', 'j', A.change)
  else
    call('HDEL', P .. 'meta', 'j')
  end
  if not A.keep then
    if A.own then
      call('HSET', P .. 'meta', 'o', A.own)
    else
      call('HDEL', P .. 'meta', 'o')
    end
    own = A.own and cmsgpack.unpack(A.own) or {}
  end
  if A.past then
    call('HSET', P .. 'idempotency', '', cmsgpack.pack(A.past))
    -- For as long as an idempotency key may be remembered. The index ends with the answers: without it, none is
    -- forgotten.
    call('PEXPIRE', P .. 'idempotency', 691200000)
    call('PEXPIRE', P .. 'idempotency-until', 691200000)
  end
end
out.done = true
out.bare = is_bare()
if call('EXISTS', P .. 'waiters') == 1 then
  call('PUBLISH', P .. 'waiters', '')
end
return answer()
