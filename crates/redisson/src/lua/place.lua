-- Before every script that walks along the pending list, a page per call. Between two calls, others remove elements
-- anywhere and add new ones only at the end, so an element only ever moves towards the head.

-- The index before `start` that holds `after`, among the 250 nearest and within about `bytes` bytes; nil if none does.
local function find_before(list, start, after, bytes)
  local to, window, sum = start - 2, 4, 0
  local first = math.max(start - 251, 0)
  while to >= first and sum <= bytes do
    local from = math.max(to - window + 1, first)
    local before = redis.call('LRANGE', list, from, to)
    for at = #before, 1, -1 do
      if before[at] == after then return from + at - 1 end
      sum = sum + #before[at]
    end
    to, window = from - 1, math.min(2 * window, 64)
  end
end

-- The index after `after`, which was at `start` - 1, a page of at most `size` elements and `bytes` bytes from there, and
-- whether it is the last; nil if `after` is not found.
local function read_page(list, start, after, size, bytes)
  if after ~= '' and redis.call('LINDEX', list, start - 1) ~= after then
    local at = find_before(list, start, after, bytes)
      or redis.call('LPOS', list, after, 'RANK', -1, 'MAXLEN', 10000)
    if not at then return nil end
    start = at + 1
  end
  local page, is_end = read_list(list, start, size, bytes)
  return start, page, is_end
end
