-- Puts dead letters back to the end of the destination, the oldest first, up to one that is not ours.
-- KEYS  1 destination  2 dead
-- ARGV  1 most
-- reply how many
-- cost  O(1) each
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'list')
if wrong then return wrong end
local payloads = {}
for at, letter in ipairs(redis.call('LRANGE', KEYS[2], 0, tonumber(ARGV[1]) - 1)) do
  local first = string.find(letter, '\0', 1, true)
  local second = first and string.find(letter, '\0', first + 1, true)
  if not second and at == 1 then return not_ours(KEYS[2], 'dead letter') end
  if not second then break end
  payloads[at] = string.sub(letter, second + 1)
end
if #payloads == 0 then return 0 end
write_though_full()
for _, payload in ipairs(payloads) do
  redis.call('RPUSH', KEYS[1], payload)
  redis.call('LPOP', KEYS[2])
end
return keep(#payloads)
