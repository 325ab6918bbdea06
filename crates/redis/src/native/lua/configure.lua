-- Sets a queue's own settings, if they are still those that the client has seen.
--
-- Keys    m w a; f s u o r l g
-- A.own   the settings, packed, or none; A.version of those that the client has seen; A.next of the new ones;
--         A.reg the queue's registration; A.fixed the spread changes, which a queue with messages refuses
-- Reply   `done`; or `changed`: somebody else has set them; or `fixed`
-- Cost    O(1)
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end
local version = tonumber(M[7] or 0)
if version ~= A.version then
  out.changed = true
  return cmsgpack.pack(out)
end
if A.fixed and call('EXISTS', P .. 'f', P .. 's', P .. 'u', P .. 'o', P .. 'r', P .. 'l', P .. 'g') > 0 then
  out.fixed = true
  return cmsgpack.pack(out)
end
call('HSET', P .. 'm', 'v', 3, 'n', A.next)
if A.reg and (not M[2] or tonumber(M[2]) < A.reg) then
  call('HSET', P .. 'm', 'g', A.reg)
end
if A.own then
  call('HSET', P .. 'm', 'o', A.own)
else
  call('HDEL', P .. 'm', 'o')
end
own = A.own and cmsgpack.unpack(A.own) or {}
out.done = true
out.bare = is_bare()
if call('EXISTS', P .. 'w') == 1 then
  call('PUBLISH', P .. 'w', '')
end
return answer()
