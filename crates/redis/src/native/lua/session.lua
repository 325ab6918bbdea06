-- Returns the partitions in which a process has session leases; or removes the process, when they are freed, or some of them.
--
-- Keys    h and p:PROCESS of the directory
-- A.process its id; A.forget; A.left partitions in which it has bound none any more, each as `index/queue`; A.silent if it is considered dead: the ms without a heartbeat
-- Reply   `parts`: a list of `index/queue`; `heard` alone: it was heard of meanwhile, and is not forgotten
-- Cost    O(partitions)
know('set', 'p:' .. A.process)
know('zset', 'h')
local last = A.silent and tonumber(call('ZSCORE', P .. 'h', A.process))
if last and last > now - A.silent then
  out.heard = true
elseif A.forget then
  call('UNLINK', P .. 'p:' .. A.process)
  call('ZREM', P .. 'h', A.process)
elseif A.left then
  for _, part in ipairs(A.left) do
    call('SREM', P .. 'p:' .. A.process, part)
  end
else
  out.parts = call('SMEMBERS', P .. 'p:' .. A.process)
end
return cmsgpack.pack(out)
