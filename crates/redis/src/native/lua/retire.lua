-- Retires a partition that is empty.
--
-- Keys    meta due-index due-index-until calls; due pending pending-urgent pending-later ready leases dead purged
-- A.reg   the queue's registration, as the directory knew it before. It and all before it are given up: a process that has made one of them
--         and comes with its first put later makes another one
-- Reply   `bare`: it has nothing; `gone` if nothing keeps it: there is nothing to clear away, and no change going on
-- Cost    O(1)
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end
out.bare = is_bare()
if out.bare and not M[8] and call('EXISTS', P .. 'purged') == 0 then
  out.gone = true
  know_hash('due-index')
  know_zset('due-index-until')
  know_hash('calls')
  if A.reg then
    call('HSET', P .. 'calls', 'g', string.format('%.0f', A.reg))
    call('PEXPIRE', P .. 'calls', 60000)
  end
  call('UNLINK', P .. 'meta', P .. 'due-index', P .. 'due-index-until')
end
hint()
return cmsgpack.pack(out)
