-- Removes the note that takes of a process wait here.
--
-- Keys    w
-- A.process its id
-- Reply   nothing
-- Cost    O(1)
call('HDEL', P .. 'w', A.process)
if call('HLEN', P .. 'w') <= 1 then
  call('UNLINK', P .. 'w')
end
return cmsgpack.pack(out)
