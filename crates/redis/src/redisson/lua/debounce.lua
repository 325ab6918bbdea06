-- Takes out every pending element with this payload and offers it anew, as one step.
-- KEYS  1 pending  2 timeouts  3 channel
-- ARGV  1 'in' or 'at'  2 milliseconds  3 the packed element  4 the payload to take out
-- reply {how many were taken out, the instant in ms as text}
-- cost  reads the whole pending list: O(N)
local wrong = wrong_type(KEYS[1], 'list') or wrong_type(KEYS[2], 'zset')
if wrong then return wrong end
local due = due_of(ARGV[1], ARGV[2], now_ms())
if due > LAST then return redis.error_reply('DUE ' .. ms_text(due)) end
local found, start = {}, 0
repeat
  local page = redis.call('LRANGE', KEYS[1], start, start + 499)
  for _, member in ipairs(page) do
    if read_element(member) == ARGV[4] then found[#found + 1] = member end
  end
  start = start + 500
until #page < 500
for _, member in ipairs(found) do take_out(KEYS[1], KEYS[2], member, 1) end
add_pending(KEYS[1], KEYS[2], KEYS[3], { { ARGV[3], due } })
return { #found, ms_text(due) }
