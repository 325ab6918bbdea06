-- What the directory does not know, or knows less of than a client does: a failover has lost it, or somebody has removed it.
--
-- Keys    m q of the directory
-- A.names of queues that the client has found messages in, or has put into; A.floor the first block of numbers that it has
--         not seen
-- Reply   `unknown`: the places in A.names of those that are not registered; `run`, the server that answers
-- Cost    O(1) a name, about 0.5 µs, and INFO
know('zset', 'q')
out.unknown = {}
for index, name in ipairs(A.names) do
  if not call('ZSCORE', P .. 'q', name) then
    out.unknown[#out.unknown + 1] = index
  end
end
out.run = running() or nil
if A.floor > (tonumber(call('HGET', P .. 'm', 'b') or 0) or 0) then
  write_though_full()
  leap_over(A.floor, 0)
end
return cmsgpack.pack(out)
