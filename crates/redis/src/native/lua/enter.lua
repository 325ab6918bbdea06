-- Registers a queue, and the partition that uses the numbers of a block; before the first put that needs it.
--
-- Keys    meta queues registrations blocks and block:BLOCK, of the directory
-- A.name  the queue, if it is to be registered; A.limit how many there may be; A.waited how many beside it takes of the
--         client wait on that are not registered, or more; A.force past the limit: the client has counted those that have something; A.above a registration that
--         was seen elsewhere, A.floor the first block of numbers that was not
-- A.lost  it has messages, and was not known: it is registered unless it is known by now. A.partitions then is the
--         default number of partitions of the client, where the directory has lost that too
-- A.block a block of numbers, the first of A.count; A.part the partition that uses them, as `index/queue`
-- Reply   `reg` the registration, higher than all before; or `full`: there are as many others as may be;
--         `count` of queues registered
-- Cost    O(log n) a block
for block = A.block or 1, A.block and A.block + A.count - 1 or 0 do
  know('set', 'block:' .. string.format('%.0f', block))
end
know('zset', 'blocks')
know('hash', 'registrations')
if A.name then
  local known = call('ZSCORE', P .. 'queues', A.name)
  local others = call('ZCARD', P .. 'queues') - (known and 1 or 0) + (A.waited or 0)
  if others >= A.limit and not A.force then
    out.full, out.count = true, others
    return cmsgpack.pack(out)
  end
  leap_after_failover()
  leap_over(A.floor or 0, A.above or 0)
  if not (A.lost and known) then
    out.reg = call('HINCRBY', P .. 'meta', 'r', 1)
    call('HSET', P .. 'meta', 'v', 1)
    call('ZADD', P .. 'queues', 0, A.name)
    call('HSET', P .. 'registrations', A.name, cmsgpack.pack({ out.reg, now }))
  end
  if A.lost and not call('HGET', P .. 'meta', 's') then
    call('HSET', P .. 'meta', 's', A.partitions)
  end
  out.count = others + 1
end
if A.block then
  for block = A.block, A.block + A.count - 1 do
    call('SADD', P .. 'block:' .. string.format('%.0f', block), A.part)
    call('ZADD', P .. 'blocks', 'NX', now, block)
  end
end
return cmsgpack.pack(out)
