-- Takes of a process wait here no more.
--
-- Keys    w
-- A.process it
-- Reply   nothing
-- Cost    O(1)
call('HDEL', P .. 'w', A.process)
if call('HLEN', P .. 'w') <= 1 then
  call('UNLINK', P .. 'w')
end
return cmsgpack.pack(out)
