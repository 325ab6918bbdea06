-- Checks whether leases are bound to a process here.
--
-- Keys    session-leases
-- A.process its id
-- Reply   `holds` if there are any; one that has run out counts until somebody has looked
-- Cost    O(log n)
know_zset('session-leases')
local first = call('ZRANGEBYLEX', P .. 'session-leases', '[' .. A.process, '[' .. A.process .. string.rep('\255', 17), 'LIMIT', 0, 1)[1]
out.holds = first and true
return cmsgpack.pack(out)
