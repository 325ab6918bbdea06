-- Clears away messages that `drop` has set aside, at most A.max of them.
--
-- Keys    m S B H k Z and those that Z names
-- Reply   `left`: whether there is more
-- Cost    about 3 µs a message
local left = A.max
for trash, name in pairs((function()
  local names, pairs_of = {}, call('HGETALL', P .. 'Z')
  for index = 1, #pairs_of, 2 do
    names[pairs_of[index]] = pairs_of[index + 1]
  end
  return names
end)()) do
  local members = call('ZPOPMIN', P .. trash, left)
  for index = 1, #members, 2 do
    local id = name == 'r' and string.sub(members[index], 7) or string.sub(members[index], 1, 16)
    local field = string.sub(id, 9)
    local packed = call('HGET', P .. 'S', field)
    if packed and not unpacked(packed, field) then
      local r = decoded(packed, field)
      if r.k and not r.K and call('HGET', P .. 'k', r.k) == id then
        call('HDEL', P .. 'k', r.k)
      end
      forget(r)
    end
    left = left - 1
  end
  if call('EXISTS', P .. trash) == 0 then
    call('HDEL', P .. 'Z', trash)
  end
  if left <= 0 then
    break
  end
end
out.left = call('EXISTS', P .. 'Z') == 1
return cmsgpack.pack(out)
