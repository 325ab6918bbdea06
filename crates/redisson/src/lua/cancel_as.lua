-- Removes the element that was offered under an id of the caller's, and forgets the id.
-- KEYS  1 pending  2 timeouts  3 the offer's own key
-- reply 1 if it was pending, 0 if not, -1 if the id is unknown
-- cost  O(log N), and a search of the pending list from its end
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset', KEYS[3], 'string')
if wrong then return wrong end
local known = redis.call('GET', KEYS[3])
if not known then return unchanged(-1) end
if not read_element(known) then return not_ours(KEYS[3], 'element') end
local standing = scheduled(KEYS[2], known)
write_though_full()
redis.call('DEL', KEYS[3])
if standing then take_out(KEYS[1], KEYS[2], standing, -1) end
return keep(standing and 1 or 0)
