-- Takes one payload from the destination, as LPOP does.
-- KEYS  1 destination
-- reply the payload, or nil
-- cost  O(1)
if repeated ~= nil then return repeated end
local wrong = wrong_type(KEYS[1], 'list')
if wrong then return wrong end
local payload = redis.call('LPOP', KEYS[1])
return payload and keep(payload) or unchanged(false)
