-- Reserves numbers of messages, whole blocks of 256.
--
-- Keys    meta of the directory
-- A.blocks how many; A.floor the first block that the client has not seen: a failover may have lost the latest steps
-- Reply   `first` block
-- Cost    O(1)
leap_after_failover()
leap_over(A.floor, 0)
local first = tonumber(call('HGET', P .. 'meta', 'b') or 0)
call('HSET', P .. 'meta', 'v', 1, 'b', first + A.blocks)
out.first = first
return cmsgpack.pack(out)
