-- Before every script that walks along the pending list, a page a call. Between two of them others take elements out,
-- and put new ones at the end alone: an element only ever moves towards the head.

-- The index behind `after`, which stood before `start`, and a page from there; nil where it is not found again.
-- To seek an index in the middle of a long list costs about an eighth of a search up to it: it is done once.
local function read_page(list, start, after, size)
  if after == '' then return start, redis.call('LRANGE', list, start, start + size - 1) end
  local page = redis.call('LRANGE', list, start - 1, start + size - 1)
  if page[1] == after then
    table.remove(page, 1)
    return start, page
  end
  local from, found = math.max(start - 250, 0), nil
  if from < start - 1 then
    local before = redis.call('LRANGE', list, from, start - 2)
    for at = #before, 1, -1 do
      if before[at] == after then
        found = from + at
        break
      end
    end
  end
  if not found then
    local at = redis.call('LPOS', list, after, 'RANK', -1, 'MAXLEN', 10000)
    found = at and at + 1
  end
  if found then return found, redis.call('LRANGE', list, found, found + size - 1) end
end
