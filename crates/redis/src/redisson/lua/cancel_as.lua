-- Takes out what was offered under an id of the caller's, and forgets the id.
-- KEYS  1 pending  2 timeouts  3 the offer's own key
-- reply 1 if it was pending, 0 if not, -1 if the id is unknown
-- cost  O(log N), and a search of the pending list from its end
local known = redis.call('GET', KEYS[3])
if not known then return -1 end
redis.call('DEL', KEYS[3])
return take_out(KEYS[1], KEYS[2], known, -1) and 1 or 0
