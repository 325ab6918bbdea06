-- Looks at pending elements before they are due, and mends what would jam Java's script: sets aside what no layout
-- reads, rewrites elements of the other layout in place if told to, rounds a fractional instant up.
-- KEYS  1 pending  2 timeouts  3 set aside
-- ARGV  1 'list' or 'timeouts': which to read a page of  2 index to begin at  3 the element before that, or ''
--       4 elements a page  5 'new' or 'old': the layout that the Java clients read, or 'any' to rewrite none
-- reply {index to go on at, or -1 where the element before is gone, last element read, whether this was the end,
--        set aside, rewritten, rounded}
-- cost  O(page log N); each element that is mended costs a search of the pending list
local wrong = wrong_type(KEYS[1], 'list') or wrong_type(KEYS[2], 'zset') or wrong_type(KEYS[3], 'hash')
if wrong then return wrong end
local start, size = tonumber(ARGV[2]), tonumber(ARGV[4])
if ARGV[1] == 'list' and ARGV[3] ~= '' and redis.call('LINDEX', KEYS[1], start - 1) ~= ARGV[3] then
  local at = redis.call('LPOS', KEYS[1], ARGV[3], 'RANK', -1, 'MAXLEN', 20000)
  if not at then return { -1, '', 0, 0, 0, 0 } end
  start = at + 1
end
local page = redis.call(ARGV[1] == 'list' and 'LRANGE' or 'ZRANGE', KEYS[ARGV[1] == 'list' and 1 or 2],
  start, start + size - 1)
local last, aside, rewritten, rounded = page[#page] or ARGV[3], 0, 0, 0

-- The same element in the layout that is wanted.
local function repack(payload, id)
  id = string.sub(id .. string.rep('\0', 8), 1, 8)
  local length, rest = '', #payload
  for _ = 1, 8 do
    length = length .. string.char(rest % 256)
    rest = math.floor(rest / 256)
  end
  return (ARGV[5] == 'new' and '\8' or '') .. id .. length .. payload
end

for at, member in ipairs(page) do
  local payload, layout, id = read_element(member)
  local score = redis.call('ZSCORE', KEYS[2], member)
  local ms = score and tonumber(score)
  local bad = not payload and 'undecodable' or (ms and ms < 0 and 'negative_score')
    or (ms and ms >= 1e17 and 'endless_score')
  if bad then
    redis.call('HSET', KEYS[3], member, (score or 'none') .. ' ' .. bad)
    take_out(KEYS[1], KEYS[2], member, 1)
    aside = aside + 1
  elseif ARGV[5] ~= 'any' and layout ~= ARGV[5] and score then
    local other = repack(payload, id)
    local listed = start + at - 1 - aside
    if ARGV[1] ~= 'list' or redis.call('LINDEX', KEYS[1], listed) ~= member then
      listed = redis.call('LPOS', KEYS[1], member)
    end
    redis.call('ZADD', KEYS[2], ms_text(math.ceil(ms)), other)
    redis.call('ZREM', KEYS[2], member)
    if listed then redis.call('LSET', KEYS[1], listed, other) end
    if member == last then last = other end
    rewritten = rewritten + 1
  elseif ms and ms ~= math.floor(ms) then
    redis.call('ZADD', KEYS[2], 'XX', ms_text(math.ceil(ms)), member)
    rounded = rounded + 1
  end
end
-- The place to go on at is behind the last element that is still there.
if aside > 0 and ARGV[1] == 'list' then
  last = redis.call('LINDEX', KEYS[1], start + #page - aside - 1)
  if start + #page - aside == 0 then last = '' end
end
return { start + #page - aside, last or '', #page < size and 1 or 0, aside, rewritten, rounded }
