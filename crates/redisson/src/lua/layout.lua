-- Before every script that handles both layouts: an element written in one may have been rewritten in the other.

-- The element with this payload and id in the layout `wanted`. Both have ids of eight bytes.
local function repack(wanted, payload, id)
  id = string.sub(id .. string.rep('\0', 8), 1, 8)
  local length, rest = '', #payload
  for _ = 1, 8 do
    length = length .. string.char(rest % 256)
    rest = math.floor(rest / 256)
  end
  return (wanted == 'new' and '\8' or '') .. id .. length .. payload
end

-- The form in which an element is scheduled, original or rewritten, and its instant; nothing if it is not scheduled.
local function scheduled(timeouts, packed)
  local at = redis.call('ZSCORE', timeouts, packed)
  if at then return packed, at end
  local payload, layout, id = read_element(packed)
  if not payload then return nil end
  local other = repack(layout == 'new' and 'old' or 'new', payload, id)
  at = redis.call('ZSCORE', timeouts, other)
  if at then return other, at end
end
