-- Gives a queue's registration up, if it is still this one.
--
-- Keys    q r of the directory
-- A.name  the queue; A.reg its registration as its partition knew it; none: it was never used, and goes if it is old
-- Reply   `count` of queues registered
-- Cost    O(log n)
know('zset', 'q')
local packed = call('HGET', P .. 'r', A.name)
local entry = packed and cmsgpack.unpack(packed)
if entry and (entry[1] == A.reg or (not A.reg and entry[2] < now - 60000)) then
  call('ZREM', P .. 'q', A.name)
  call('HDEL', P .. 'r', A.name)
end
out.count = call('ZCARD', P .. 'q')
return cmsgpack.pack(out)
