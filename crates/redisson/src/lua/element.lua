-- Before every script that decodes packed elements: the same rule as `element.rs`.

-- The eight bytes of `s` from `at`, little-endian; nil where there are fewer, or for 2^53 and above.
local function u64(s, at)
  local a, b, c, d, e, f, g, h = string.byte(s, at, at + 7)
  if not h or h > 0 or g > 31 then return nil end
  return a + 256 * (b + 256 * (c + 256 * (d + 256 * (e + 256 * (f + 256 * g)))))
end

-- Decodes a packed element: payload, 'new' or 'old', id. Nothing if it is not one.
local function read_element(packed)
  local size = #packed
  local id_size = string.byte(packed, 1)
  local new = id_size and id_size > 0 and u64(packed, id_size + 2) == size - 9 - id_size
  local old = u64(packed, 9) == size - 16
  if new and old then
    local seventh, eighth = string.byte(packed, 7, 8)
    local exponent = (eighth % 128) * 16 + math.floor(seventh / 16) - 1023
    if exponent >= 30 and exponent <= 63 then new = false end
  end
  if new then
    return string.sub(packed, id_size + 10), 'new', string.sub(packed, 2, id_size + 1)
  end
  if old then
    return string.sub(packed, 17), 'old', string.sub(packed, 1, 8)
  end
end
