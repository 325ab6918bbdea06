-- Removes a queue's registration, if it is still this one.
--
-- Keys    queues registrations of the directory
-- A.name  the queue; A.reg its registration, as it was before all of its partitions were seen to be empty; none: keep it
-- Reply   `count` of queues registered; `reg` the registration that there is, and `age` in ms
-- Cost    O(log n)
know('zset', 'queues')
local packed = call('HGET', P .. 'registrations', A.name)
local entry = packed and cmsgpack.unpack(packed)
if entry then
  out.reg, out.age = entry[1], now - entry[2]
end
if entry and entry[1] == A.reg then
  call('ZREM', P .. 'queues', A.name)
  call('HDEL', P .. 'registrations', A.name)
end
out.count = call('ZCARD', P .. 'queues')
return cmsgpack.pack(out)
