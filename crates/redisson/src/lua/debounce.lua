-- Replaces the pending elements with this payload by a new one, atomically. The list was walked before: the element
-- that was found is an argument, and elements that were offered since are searched here.
-- KEYS  1 pending  2 timeouts  3 channel
-- ARGV  1 'in' or 'at'  2 milliseconds  3 the packed element  4 the payload to remove
--       5 index of the walk's position  6 the element before that, or ''  7 most elements to read here
--       8 most bytes to read here, not counting the first element  9 most elements to remove
--       10 '1' or '-1': the end of the list that is nearer to the element left by the walk  11 that element, if any
-- reply {number removed, the instant in ms as text}; or {-1, ''} if the walk has to continue first
-- cost  O(ARGV 7), and a search of the pending list for each element removed, at most ARGV 9
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset')
if wrong then return wrong end
local due = due_of(ARGV[1], ARGV[2], now_ms())
wrong = wrong_instant(due)
if wrong then return wrong end
local start, page = read_page(KEYS[1], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]))
if not start or start + #page < redis.call('LLEN', KEYS[1]) then return unchanged({ -1, '' }) end
local found = { ARGV[11] }
local first_since = #found + 1
for _, member in ipairs(page) do
  if read_element(member) == ARGV[4] then found[#found + 1] = member end
end
if #found > tonumber(ARGV[9]) then return unchanged({ -1, '' }) end
-- The new element is added before the others are removed: a full Redis refuses that, and nothing is changed.
add_pending(KEYS[1], KEYS[2], KEYS[3], { { ARGV[3], due } })
local taken = 0
for at, member in ipairs(found) do
  local from = at < first_since and ARGV[10] or -1
  if take_out(KEYS[1], KEYS[2], scheduled(KEYS[2], member) or member, from) then taken = taken + 1 end
end
return keep({ taken, ms_text(due) })
