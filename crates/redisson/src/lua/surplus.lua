-- Removes some of several pending elements with one payload, as long as another one of them stays.
-- KEYS  1 pending  2 timeouts
-- ARGV  1 the one that stays  2... '1' or '-1': the end of the list that is nearer, and the element; repeated
-- reply the number removed, or -1 if the one that should stay is no longer scheduled: nothing is removed then
-- cost  a search of the pending list from the nearer end for each
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset')
if wrong then return wrong end
if not scheduled(KEYS[2], ARGV[1]) then return unchanged(-1) end
-- Before anything is removed: a full Redis refuses this, as it would refuse the offer that follows.
keep(0)
local taken = 0
for at = 2, #ARGV, 2 do
  local member = ARGV[at + 1]
  if take_out(KEYS[1], KEYS[2], scheduled(KEYS[2], member) or member, ARGV[at]) then taken = taken + 1 end
end
return keep(taken)
