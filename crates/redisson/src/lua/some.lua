-- Before every script that reads many elements or payloads. Their size is known only after reading, so the first is
-- read alone, and then as many at a time as are expected to stay within the limit, given the mean size so far.

-- The maximum number read at a time: where large ones follow small ones, this many may be read in vain.
local AT_ONCE = 16

-- Reads with `read(skip, count)` up to `most` items and, not counting the first, `bytes` bytes. Returns the items,
-- whether there are no more, and their size in bytes.
local function read_some(read, most, bytes)
  local all, sum, count = {}, 0, 1
  while #all < most do
    count = math.min(count, most - #all)
    local some = read(#all, count)
    for _, one in ipairs(some) do
      if #all > 0 and sum + #one > bytes then return all, false, sum end
      all[#all + 1], sum = one, sum + #one
    end
    if #some < count then return all, true, sum end
    if sum >= bytes then return all, false, sum end
    count = math.min(2 * #all, AT_ONCE, 1 + math.floor((bytes - sum) / (sum / #all)))
  end
  return all, false, sum
end

-- The same for a list, from an index on.
local function read_list(list, start, most, bytes)
  return read_some(function(skip, count)
    return redis.call('LRANGE', list, start + skip, start + skip + count - 1)
  end, most, bytes)
end
