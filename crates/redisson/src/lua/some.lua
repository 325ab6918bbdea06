-- Before every script that reads many elements or payloads: how big they are is known only when they are read, so the
-- first is read alone, and then more at a time, as many as their mean size lets expect within the bound.

-- The most that are read at a time: where big ones follow small ones, so many may be read in vain.
local AT_ONCE = 16

-- Of what `read(skip, count)` gives as many as `most` and, but for the first, `bytes` allow; whether there are no more;
-- and how many bytes they have.
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

-- The same of a list, from an index on.
local function read_list(list, start, most, bytes)
  return read_some(function(skip, count)
    return redis.call('LRANGE', list, start + skip, start + skip + count - 1)
  end, most, bytes)
end
