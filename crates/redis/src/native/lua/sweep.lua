-- Frees messages that `drop` has set aside, at most A.max of them.
--
-- Keys    meta records bodies headers keys purged and those that purged names
-- Reply   `left`: whether there is more
-- Cost    about 3 µs a message
know_all()
local left = A.max

local function clear(id)
  local field = string.sub(id, 9)
  local packed = call('HGET', P .. 'records', field)
  if packed and not unpacked(packed, field) then
    local r = decoded(packed, field)
    if r.k and not r.K and call('HGET', P .. 'keys', r.k) == id then
      call('HDEL', P .. 'keys', r.k)
    end
    forget(r)
  end
end

local aside = call('HGETALL', P .. 'purged')
for index = 1, #aside, 2 do
  local trash, name = aside[index], aside[index + 1]
  if left <= 0 then
    break
  end
  local members = call('ZRANGE', P .. trash, 0, left - 1)
  for _, member in ipairs(members) do
    -- A foreign record stays where it is, and nothing refers to it any more.
    pcall(clear, name == 'ready' and string.sub(member, 7) or string.sub(member, 1, 16))
  end
  left = left - #members
  if members[1] then
    call('ZREMRANGEBYRANK', P .. trash, 0, #members - 1)
  end
  if call('EXISTS', P .. trash) == 0 then
    call('HDEL', P .. 'purged', trash)
  end
end
out.left = call('EXISTS', P .. 'purged') == 1
return cmsgpack.pack(out)
