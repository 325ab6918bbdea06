-- The partitions in which a process has bound leases; or forgets the process, when they are freed.
--
-- Keys    h and p:PROCESS of the directory
-- A.process its id; A.forget
-- Reply   `parts`: a list of `index/queue`
-- Cost    O(partitions)
know('set', 'p:' .. A.process)
know('zset', 'h')
if A.forget then
  call('UNLINK', P .. 'p:' .. A.process)
  call('ZREM', P .. 'h', A.process)
else
  out.parts = call('SMEMBERS', P .. 'p:' .. A.process)
end
return cmsgpack.pack(out)
