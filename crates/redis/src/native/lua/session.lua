-- Returns the partitions in which a process has session leases; or removes the process, when they are freed, or some of them.
--
-- Keys    heartbeats and session:PROCESS of the directory
-- A.process its id; A.forget; A.left partitions in which it has bound none any more, each as `index/queue`; A.silent if it is considered dead: the ms without a heartbeat
-- Reply   `parts`: a list of `index/queue`; `heard` alone: it was heard of meanwhile, and is not forgotten
-- Cost    O(partitions)
know('set', 'session:' .. A.process)
know('zset', 'heartbeats')
local last = A.silent and tonumber(call('ZSCORE', P .. 'heartbeats', A.process))
if last and last > now - A.silent then
  out.heard = true
elseif A.forget then
  call('UNLINK', P .. 'session:' .. A.process)
  call('ZREM', P .. 'heartbeats', A.process)
elseif A.left then
  for _, part in ipairs(A.left) do
    call('SREM', P .. 'session:' .. A.process, part)
  end
else
  out.parts = call('SMEMBERS', P .. 'session:' .. A.process)
end
return cmsgpack.pack(out)
