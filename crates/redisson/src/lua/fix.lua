-- Applies one of the doctor's fixes to a few elements, each of which is checked again first.
-- KEYS  1 pending  2 timeouts  3 set aside
-- ARGV  1 fix  2... packed elements
--       set_aside  from both into the hash            unlist   a list entry without an instant: into the hash
--       list       an instant without a list entry: to the end of the list
--       once       removes all but the first of several equal list entries
--       round      rounds a fractional instant up
-- reply the number fixed
-- cost  O(N) per element: a search of the whole list, and another if entries are removed
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset', KEYS[3], 'hash')
if wrong then return wrong end
local fixed = 0
if ARGV[1] ~= 'list' then write_though_full() end
for at = 2, #ARGV do
  local member, fix = ARGV[at], ARGV[1]
  local score = redis.call('ZSCORE', KEYS[2], member)
  local places = fix == 'round' and {} or redis.call('LPOS', KEYS[1], member, 'COUNT', 0)
  if fix == 'set_aside' and (score or #places > 0) or fix == 'unlist' and not score and #places > 0 then
    redis.call('HSET', KEYS[3], member, (score or 'none') .. ' ' .. (fix == 'unlist' and 'orphan' or 'poison'))
    redis.call('ZREM', KEYS[2], member)
    if #places > 0 then redis.call('LREM', KEYS[1], 0, member) end
    fixed = fixed + 1
  elseif fix == 'list' and score and #places == 0 then
    redis.call('RPUSH', KEYS[1], member)
    fixed = fixed + 1
  elseif fix == 'once' and #places > 1 then
    redis.call('LREM', KEYS[1], 1 - #places, member)
    fixed = fixed + 1
  elseif fix == 'round' and score and tonumber(score) ~= math.floor(tonumber(score)) then
    redis.call('ZADD', KEYS[2], 'XX', ms_text(math.ceil(tonumber(score))), member)
    fixed = fixed + 1
  end
end
return fixed > 0 and keep(fixed) or unchanged(fixed)
