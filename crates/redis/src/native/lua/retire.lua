-- Retires a partition that is empty.
--
-- Keys    m N n a; f s u o r l g Z
-- A.reg   the queue's registration, as the directory knew it before. It and all before it are given up: a process that has made one of them
--         and comes with its first put later makes another one
-- Reply   `bare`: it has nothing; `gone` if nothing keeps it: there is nothing to clear away, and no change going on
-- Cost    O(1)
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end
out.bare = is_bare()
if out.bare and not M[8] and call('EXISTS', P .. 'Z') == 0 then
  out.gone = true
  know_hash('N')
  know_zset('n')
  know_hash('a')
  if A.reg then
    call('HSET', P .. 'a', 'g', string.format('%.0f', A.reg))
    call('PEXPIRE', P .. 'a', 60000)
  end
  call('UNLINK', P .. 'm', P .. 'N', P .. 'n')
end
hint()
return cmsgpack.pack(out)
