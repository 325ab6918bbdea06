-- Offers elements atomically: none of them if a key has another type or an instant is out of range.
-- KEYS  1 pending  2 timeouts  3 channel
-- ARGV  for each element: 'in' or 'at', milliseconds, the packed element
-- reply the due instants, in milliseconds as text
-- cost  O(log N) per element
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset')
if wrong then return wrong end
local now, elements, dues = repeated or now_ms(), {}, {}
for at = 1, #ARGV, 3 do
  local due = due_of(ARGV[at], ARGV[at + 1], now)
  wrong = wrong_instant(due)
  if wrong then return wrong end
  elements[#elements + 1] = { ARGV[at + 2], due }
  dues[#dues + 1] = ms_text(due)
end
if not repeated then
  add_pending(KEYS[1], KEYS[2], KEYS[3], elements)
  keep(now)
end
return dues
