-- Moves due elements to the destination, and sets aside those that would jam Java's script.
-- KEYS  1 destination  2 pending  3 timeouts  4 set aside  5 inbox  6 leases
--       7 the time since which the inbox has been non-empty
-- ARGV  1 most elements  2 1 or -1: the end of the pending list from which they are searched
--       3 1 to sample the length of that search, which costs two more  4 most bytes, not counting the first element
-- reply {moved, set aside, next instant as text or '', now in ms, 1 if more may be due,
--        number of entries that a search passes, or -1 without a sample, bytes of the elements,
--        the time it took in us, or 0 where the clock stands still,
--        a fingerprint that changes when an element is offered or removed, 1 if nothing is pending,
--        1 if there are leases or the inbox is non-empty}
-- cost  O(log N) per element, and the search for it in the pending list, O(N) at worst
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'list', KEYS[3], 'zset', KEYS[4], 'hash')
if wrong then return wrong end
local began = time_us()
local now = math.floor(began / 1000)
local due, is_end, bytes = read_some(function(skip, count)
  return redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ms_text(now), 'LIMIT', skip, count)
end, tonumber(ARGV[1]), tonumber(ARGV[4]))
local moved, aside = 0, 0

-- The number of entries that the search for an element passes.
local function passed(member)
  local at, size = redis.call('LPOS', KEYS[2], member, 'RANK', ARGV[2]), redis.call('LLEN', KEYS[2])
  if not at then return size end
  return ARGV[2] == '1' and at + 1 or size - at
end
local sampled = -1
if ARGV[3] == '1' and #due > 0 then
  sampled = math.floor((passed(due[1]) + passed(due[#due])) / 2)
end

-- Negative scores come first.
local negative = 0
if #due > 0 then
  negative = redis.call('ZCOUNT', KEYS[3], '-inf', '(0')
  -- A payload uses the memory that its element frees.
  write_though_full()
end
for at, member in ipairs(due) do
  local payload = read_element(member)
  local bad = not payload and 'undecodable' or (at <= negative and 'negative_score')
  if bad then
    redis.call('HSET', KEYS[4], member, redis.call('ZSCORE', KEYS[3], member) .. ' ' .. bad)
    aside = aside + 1
  else
    redis.call('RPUSH', KEYS[1], payload)
    moved = moved + 1
  end
  redis.call('ZREM', KEYS[3], member)
  redis.call('LREM', KEYS[2], ARGV[2], member)
end

-- Enough of an element to identify it: its id is at its beginning.
local function sign(element)
  return element and #element .. ':' .. string.sub(element, 1, 32) or ''
end
local head = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
local listed, scheduled = redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3])
local signs = listed .. ' ' .. scheduled .. ' ' .. (head[2] or '') .. ' ' .. sign(head[1])
if listed > 0 then signs = signs .. ' ' .. sign(redis.call('LINDEX', KEYS[2], -1)) end
local reply = {
  moved, aside, head[2] or '', now, is_end and 0 or 1, sampled, bytes, time_us() - began,
  signs, listed + scheduled == 0 and 1 or 0, redis.call('EXISTS', KEYS[5], KEYS[6], KEYS[7]) > 0 and 1 or 0,
}
return #due > 0 and keep(reply) or unchanged(reply)
