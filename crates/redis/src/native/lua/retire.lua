-- Lets go of a partition that has nothing any more.
--
-- Keys    m N n; f s u o r l g Z
-- Reply   `bare`: it has nothing; `reg` its registration, which may be given up; none if there was none, or there is
--         something to clear away yet
-- Cost    O(1)
if not touch() then
  return cmsgpack.pack(out)
end
out.bare = is_bare()
if out.bare and call('EXISTS', P .. 'Z') == 0 then
  out.reg = M[2] and tonumber(M[2])
  know_hash('N')
  know_zset('n')
  call('UNLINK', P .. 'm', P .. 'N', P .. 'n')
end
hint()
return cmsgpack.pack(out)
