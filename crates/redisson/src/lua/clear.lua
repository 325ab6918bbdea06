-- Removes all pending elements.
-- KEYS  1 pending  2 timeouts
-- reply 1 if there was anything, else 0
-- cost  O(1): Redis frees them in the background
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset')
if wrong then return wrong end
return redis.call('UNLINK', KEYS[1], KEYS[2]) > 0 and keep(1) or unchanged(0)
