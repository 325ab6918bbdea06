-- Finds what the directory does not know, or knows less of than a client does: a failover has lost it, or it was removed.
--
-- Keys    meta queues registrations of the directory
-- A.names of queues that the client has found messages in, or has put into; A.floor the first block of numbers that it has
--         not seen
-- A.assumed how many partitions it assumes that each of them has, if it has used them lately; A.partitions the default
--         number of partitions; A.sure if it has looked
-- Reply   `unknown`: the places in A.names of those that are not registered; `wider`: place and partitions of those that somebody
--         has reported to be wider, for their first partition may have lost that; `run`, the server that answers
-- Cost    O(1) a name, about 1 µs, and INFO
know('zset', 'queues')
know('hash', 'registrations')
out.unknown, out.wider = {}, {}
local told = {}
for index, name in ipairs(A.names) do
  if not call('ZSCORE', P .. 'queues', name) then
    out.unknown[#out.unknown + 1] = index
  elseif A.assumed then
    local is_packed, entry = pcall(cmsgpack.unpack, call('HGET', P .. 'registrations', name) or '')
    local partitions = A.assumed[index]
    if is_packed and type(entry) == 'table' and (entry[3] or A.partitions) ~= partitions then
      if (entry[3] or A.partitions) > partitions and not A.sure then
        out.wider[#out.wider + 1] = { index, entry[3] or A.partitions }
      else
        entry[3] = partitions
        told[#told + 1] = name
        told[#told + 1] = cmsgpack.pack(entry)
      end
    end
  end
end
if told[1] then
  write_though_full()
  call('HSET', P .. 'registrations', unpack(told))
end
out.run = running() or nil
if A.floor > (tonumber(call('HGET', P .. 'meta', 'b') or 0) or 0) then
  write_though_full()
  leap_over(A.floor, 0)
end
return cmsgpack.pack(out)
