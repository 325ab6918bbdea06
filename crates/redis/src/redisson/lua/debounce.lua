-- Takes out every pending element with this payload and offers it anew, as one step. The list was walked before: the
-- elements that were found come with the call, and what was offered since is looked at here.
-- KEYS  1 pending  2 timeouts  3 channel
-- ARGV  1 'in' or 'at'  2 milliseconds  3 the packed element  4 the payload to take out
--       5 index at which the walk stands  6 the element before that, or ''  7 most elements to look at here
--       8... elements that the walk has found
-- reply {how many were taken out, the instant in ms as text}; or {-1, ''} if the walk has to go on first
-- cost  O(ARGV 7), and a search of the pending list for each that is taken out
if repeated then return repeated end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'zset')
if wrong then return wrong end
local due = due_of(ARGV[1], ARGV[2], now_ms())
wrong = wrong_instant(due)
if wrong then return wrong end
local start, page = read_page(KEYS[1], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]))
if not start or start + #page < redis.call('LLEN', KEYS[1]) then return { -1, '' } end
local found = {}
for at = 8, #ARGV do found[#found + 1] = ARGV[at] end
for _, member in ipairs(page) do
  if read_element(member) == ARGV[4] then found[#found + 1] = member end
end
-- The new one comes before the others go: a full Redis refuses that, and nothing is changed.
add_pending(KEYS[1], KEYS[2], KEYS[3], { { ARGV[3], due } })
local taken = 0
for _, member in ipairs(found) do
  if take_out(KEYS[1], KEYS[2], scheduled(KEYS[2], member) or member, 1) then taken = taken + 1 end
end
return keep({ taken, ms_text(due) })
