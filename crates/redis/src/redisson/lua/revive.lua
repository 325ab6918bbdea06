-- Puts dead letters back to the end of the destination, the oldest first.
-- KEYS  1 destination  2 dead
-- ARGV  1 most
-- reply how many
-- cost  O(1) each
local wrong = wrong_type(KEYS[1], 'list') or wrong_type(KEYS[2], 'list')
if wrong then return wrong end
local revived = 0
while revived < tonumber(ARGV[1]) do
  local letter = redis.call('LINDEX', KEYS[2], 0)
  if not letter then break end
  local first = string.find(letter, '\0', 1, true)
  local second = first and string.find(letter, '\0', first + 1, true)
  if not second then return redis.error_reply('ERR a dead letter is none of ours') end
  redis.call('RPUSH', KEYS[1], string.sub(letter, second + 1))
  redis.call('LPOP', KEYS[2])
  revived = revived + 1
end
return revived
