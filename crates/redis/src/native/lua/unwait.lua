-- Removes the note that takes of a process wait here.
--
-- Keys    waiters
-- A.process its id
-- Reply   nothing
-- Cost    O(1)
call('HDEL', P .. 'waiters', A.process)
if call('HLEN', P .. 'waiters') <= 1 then
  call('UNLINK', P .. 'waiters')
end
return cmsgpack.pack(out)
