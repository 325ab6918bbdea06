-- A process says that it is there: at open, before it first binds a lease in a partition, and every few seconds.
--
-- Keys    c h m q and p:PROCESS of the directory
-- A.process its id; A.client its name: the process of this name that came before is gone. `c` has the two last ones of a
--         name, so that a call that is made again gets the same answer
-- A.bound a partition in which it binds a lease from now on, as `index/queue`
-- A.spread over how many partitions it spreads queues that do not say: all processes must agree, as long as there are
--         queues
-- Reply   `spread` alone: the others spread theirs so; else `before`, the process that had the name; `gone`, processes that have not been heard of for A.silent ms
-- Cost    O(log n)
know('zset', 'h')
know('hash', 'c')
if A.bound then
  know('set', 'p:' .. A.process)
end
if A.spread then
  local known = tonumber(call('HGET', P .. 'm', 's') or A.spread)
  if known ~= A.spread and call('EXISTS', P .. 'q') == 1 then
    out.spread = known
    return cmsgpack.pack(out)
  end
end
write_though_full()
if A.spread then
  call('HSET', P .. 'm', 'v', 3, 's', A.spread)
end
if A.client then
  local last = call('HGET', P .. 'c', A.client) or ''
  local is_again = string.sub(last, 1, #A.process) == A.process
  local before = string.sub(last, is_again and #A.process + 1 or 1, is_again and -1 or #A.process)
  out.before = before ~= '' and before or nil
  call('HSET', P .. 'c', A.client, A.process .. before)
end
if A.bound then
  call('SADD', P .. 'p:' .. A.process, A.bound)
end
call('ZADD', P .. 'h', now, A.process)
if A.silent then
  out.gone = call('ZRANGEBYSCORE', P .. 'h', '-inf', now - A.silent, 'LIMIT', 0, 16)
end
return cmsgpack.pack(out)
