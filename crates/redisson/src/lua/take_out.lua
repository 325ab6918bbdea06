-- Removes elements from the pending list and the timeouts.
-- KEYS  1 pending  2 timeouts
-- ARGV  packed elements
-- reply for each 1 if it was there, else 0
-- cost  O(log N) per element, and a search of the pending list
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset')
if wrong then return wrong end
local taken, any = {}, false
write_though_full()
for at, member in ipairs(ARGV) do
  taken[at] = take_out(KEYS[1], KEYS[2], member, 1) and 1 or 0
  any = any or taken[at] == 1
end
return any and keep(taken) or unchanged(taken)
