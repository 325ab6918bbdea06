-- Moves dead letters to the end of the destination, oldest first, up to one that is a foreign value.
-- KEYS  1 destination  2 dead
-- ARGV  1 most  2 most bytes, not counting the first
-- reply {number moved, 1 if there may be more}
-- cost  O(1) each
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'list')
if wrong then return wrong end
local payloads = {}
local letters, is_end = read_list(KEYS[2], 0, tonumber(ARGV[1]), tonumber(ARGV[2]))
for at, letter in ipairs(letters) do
  local first = string.find(letter, '\0', 1, true)
  local second = first and string.find(letter, '\0', first + 1, true)
  if not second and at == 1 then return not_ours(KEYS[2], 'dead letter') end
  if not second then break end
  payloads[at] = string.sub(letter, second + 1)
end
if #payloads == 0 then return unchanged({ 0, 0 }) end
write_though_full()
for _, payload in ipairs(payloads) do
  redis.call('RPUSH', KEYS[1], payload)
  redis.call('LPOP', KEYS[2])
end
return keep({ #payloads, not is_end and #payloads == #letters and 1 or 0 })
