-- Takes out some of several pending elements with one payload, as long as another one of them stays.
-- KEYS  1 pending  2 timeouts
-- ARGV  1 the one that stays  2... '1' or '-1': the end of the list that is nearer, and the element; as often as wanted
-- reply how many were taken out, or -1 if the one that should stay is not scheduled any more: nothing is taken out then
-- cost  a search of the pending list each, from the nearer end
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset')
if wrong then return wrong end
if not scheduled(KEYS[2], ARGV[1]) then return unchanged(-1) end
-- Before anything goes: a full Redis refuses this, as it would refuse the offer that follows.
keep(0)
local taken = 0
for at = 2, #ARGV, 2 do
  local member = ARGV[at + 1]
  if take_out(KEYS[1], KEYS[2], scheduled(KEYS[2], member) or member, ARGV[at]) then taken = taken + 1 end
end
return keep(taken)
