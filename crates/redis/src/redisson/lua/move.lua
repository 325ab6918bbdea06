-- Moves elements that are due to the destination, and sets aside what would jam Java's script.
-- KEYS  1 destination  2 pending  3 timeouts  4 set aside
-- ARGV  1 most elements  2 1 or -1: the end of the pending list from which they are searched for
--       3 1 to sample how far that search goes, which costs two more
-- reply {moved, set aside, elements that were due (at most ARGV 1), next instant as text or '', now in ms,
--        how many entries a search passes, or -1 without a sample: a script can not time itself}
-- cost  O(log N) an element, and the search for it in the pending list, O(N) at worst
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'list', KEYS[3], 'zset', KEYS[4], 'hash')
if wrong then return wrong end
local now = now_ms()
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ms_text(now), 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local moved, aside = 0, 0

-- How many entries the search for an element passes.
local function passed(member)
  local at, size = redis.call('LPOS', KEYS[2], member, 'RANK', ARGV[2]), redis.call('LLEN', KEYS[2])
  if not at then return size end
  return ARGV[2] == '1' and at + 1 or size - at
end
local sampled = -1
if ARGV[3] == '1' and #due > 0 then
  sampled = math.floor((passed(due[1]) + passed(due[#due - 1])) / 2)
end

-- A payload takes what its element gives free.
if #due > 0 then write_though_full() end
for at = 1, #due, 2 do
  local member, score = due[at], due[at + 1]
  local payload = read_element(member)
  local bad = not payload and 'undecodable' or (tonumber(score) < 0 and 'negative_score')
  if bad then
    redis.call('HSET', KEYS[4], member, score .. ' ' .. bad)
    aside = aside + 1
  else
    redis.call('RPUSH', KEYS[1], payload)
    moved = moved + 1
  end
  redis.call('ZREM', KEYS[3], member)
  redis.call('LREM', KEYS[2], ARGV[2], member)
end
local head = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
local reply = { moved, aside, #due / 2, head[2] or '', now, sampled }
return #due > 0 and keep(reply) or reply
