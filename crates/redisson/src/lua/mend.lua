-- Checks a page of pending elements before they are due, and fixes those that would jam Java's script: sets aside
-- elements that no layout can decode, rewrites elements of the other layout in place on request, rounds fractional
-- instants up. An element that is far from either end of the list is only unscheduled here; the walk along the list
-- removes it.
-- KEYS  1 pending  2 timeouts  3 set aside
-- ARGV  1 'list' or 'timeouts': the key to read a page of  2 index to start at  3 the element before that, or ''
--       4 elements per page  5 'new' or 'old': the layout of the Java clients, or 'any' to rewrite none
--       6 how many list entries all searches may pass: the first one is not limited, the others wait for the next
--         script
--       7 bytes per page, not counting the first element
-- reply {index to continue at, or -1 if the element before is gone, last element read, whether this was the end,
--        set aside, rewritten, rounded, elements checked, the time it took in us}
-- cost  O(page log N) and what ARGV 6 allows, or one search of the pending list from its nearer end
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset', KEYS[3], 'hash')
if wrong then return wrong end
local walks, size, wanted, left = ARGV[1] == 'list', tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local bytes, began = tonumber(ARGV[7]), time_us()
local start, page, has_ended
if walks then
  start, page, has_ended = read_page(KEYS[1], tonumber(ARGV[2]), ARGV[3], size, bytes)
else
  start, page = 0, read_some(function(skip, count)
    return redis.call('ZRANGE', KEYS[2], skip, skip + count - 1)
  end, size, bytes)
end
if not start then return unchanged({ -1, '', 0, 0, 0, 0, 0, 0 }) end
local aside, rewritten, rounded, has_written, has_searched, has_unlisted = 0, 0, 0, false, false, false

local function write(...)
  if not has_written then write_though_full() end
  has_written = true
  return redis.call(...)
end

-- Whether a search that passes this many entries is still allowed.
local function affords(entries)
  if has_searched and entries > left then return false end
  has_searched, left = true, left - entries
  return true
end

-- The index of an element near either end of the list; nil if the search is not allowed or does not find it.
local NEAR = 1000
local function near(member)
  if not affords(NEAR) then return nil end
  return redis.call('LPOS', KEYS[1], member, 'MAXLEN', NEAR)
    or redis.call('LPOS', KEYS[1], member, 'RANK', -1, 'MAXLEN', NEAR)
end

-- Removes the entry at an index from the list, searching from the nearer end.
local function unlist(member, index)
  local behind = redis.call('LLEN', KEYS[1]) - index
  write('LREM', KEYS[1], index < behind and 1 or -1, member)
  has_unlisted = true
end

-- The number of entries that this search passes.
local function distance(index)
  return math.min(index + 1, redis.call('LLEN', KEYS[1]) - index)
end

local function set_aside(member, score, why)
  write(score and 'HSET' or 'HSETNX', KEYS[3], member, (score or 'none') .. ' ' .. why)
  write('ZREM', KEYS[2], member)
end

-- Replaces an element by another one.
local function rewrite(member, other, ms, index)
  write('ZADD', KEYS[2], ms_text(math.ceil(ms)), other)
  write('ZREM', KEYS[2], member)
  write('LSET', KEYS[1], index, other)
  rewritten = rewritten + 1
end

-- In a walk along the list, the index of the current element.
local index, is_cut, last = start, false, ARGV[3]
for _, member in ipairs(page) do
  local payload, layout, id = read_element(member)
  local score = redis.call('ZSCORE', KEYS[2], member)
  local ms = score and tonumber(score)
  local bad = not payload and 'undecodable' or (ms and ms < 0 and 'negative_score')
    or (ms and ms >= 1e17 and 'endless_score')
  -- It was unscheduled before, when it was far from either end.
  local is_left = walks and not bad and not score and redis.call('HEXISTS', KEYS[3], member) == 1
  if bad or is_left then
    if walks and not affords(distance(index)) then
      is_cut = true
      break
    end
    if bad then
      if score or redis.call('HEXISTS', KEYS[3], member) == 0 then aside = aside + 1 end
      set_aside(member, score, bad)
    end
    local at = walks and index or not walks and near(member)
    if at then unlist(member, at) end
    if walks then index = index - 1 end
  elseif wanted ~= 'any' and layout ~= wanted and score then
    local at = walks and index or not walks and near(member)
    -- Indexes may have shifted if an entry was removed that was listed twice.
    if at and affords(200 + math.floor(distance(at) / 8))
      and (not has_unlisted or redis.call('LINDEX', KEYS[1], at) == member) then
      local other = repack(wanted, payload, id)
      rewrite(member, other, ms, at)
      member = other
    elseif walks then
      -- The indexes have shifted, or this script has done enough.
      is_cut = true
      break
    end
  elseif ms and ms ~= math.floor(ms) then
    write('ZADD', KEYS[2], 'XX', ms_text(math.ceil(ms)), member)
    rounded = rounded + 1
  end
  index, last = index + 1, member
end
local is_end = has_ended and not is_cut
if has_unlisted then last = index > 0 and redis.call('LINDEX', KEYS[1], index - 1) or '' end
local reply = { index, last, is_end and 1 or 0, aside, rewritten, rounded, #page, time_us() - began }
return has_written and keep(reply) or unchanged(reply)
