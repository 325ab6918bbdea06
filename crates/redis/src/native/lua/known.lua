-- Finds what the directory does not know, or knows less of than a client does: a failover has lost it, or it was removed.
--
-- Keys    m q r of the directory
-- A.names of queues that the client has found messages in, or has put into; A.floor the first block of numbers that it has
--         not seen
-- A.spreads over how many partitions it assumes each of them to be spread, if it has used them lately; A.spread over how many
--         those are that do not say; A.sure if it has looked
-- Reply   `unknown`: the places in A.names of those that are not registered; `wider`: place and spread of those that somebody
--         has told to be wider, for their first partition may have lost that; `run`, the server that answers
-- Cost    O(1) a name, about 1 µs, and INFO
know('zset', 'q')
know('hash', 'r')
out.unknown, out.wider = {}, {}
local told = {}
for index, name in ipairs(A.names) do
  if not call('ZSCORE', P .. 'q', name) then
    out.unknown[#out.unknown + 1] = index
  elseif A.spreads then
    local is_packed, entry = pcall(cmsgpack.unpack, call('HGET', P .. 'r', name) or '')
    local spread = A.spreads[index]
    if is_packed and type(entry) == 'table' and (entry[3] or A.spread) ~= spread then
      if (entry[3] or A.spread) > spread and not A.sure then
        out.wider[#out.wider + 1] = { index, entry[3] or A.spread }
      else
        entry[3] = spread
        told[#told + 1] = name
        told[#told + 1] = cmsgpack.pack(entry)
      end
    end
  end
end
if told[1] then
  write_though_full()
  call('HSET', P .. 'r', unpack(told))
end
out.run = running() or nil
if A.floor > (tonumber(call('HGET', P .. 'm', 'b') or 0) or 0) then
  write_though_full()
  leap_over(A.floor, 0)
end
return cmsgpack.pack(out)
