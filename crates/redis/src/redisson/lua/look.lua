-- Says of elements where they stand: the doctor's second look, in one step, since the first one read in pages.
-- KEYS  1 pending  2 timeouts
-- ARGV  packed elements
-- reply for each: score as text or '', how often it is in the pending list (at most two are looked for)
-- cost  O(N) an element
local reply = {}
for _, member in ipairs(ARGV) do
  reply[#reply + 1] = redis.call('ZSCORE', KEYS[2], member) or ''
  reply[#reply + 1] = #redis.call('LPOS', KEYS[1], member, 'COUNT', 2)
end
return reply
