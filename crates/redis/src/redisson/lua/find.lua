-- Reads a page of the pending list, and gives the elements whose payload is one of those asked for.
-- KEYS  1 pending
-- ARGV  1 index to begin at  2 the element before that, or ''  3 elements a page  4... payloads
-- reply {index to go on at, or -1 where the element before is gone and the walk begins again, last element read,
--        whether this was the end, elements found}
-- cost  O(page), and a search for the element before where others were taken out in front of it
local start = tonumber(ARGV[1])
if ARGV[2] ~= '' and redis.call('LINDEX', KEYS[1], start - 1) ~= ARGV[2] then
  local at = redis.call('LPOS', KEYS[1], ARGV[2], 'MAXLEN', start)
  if not at then return { -1, '', 0, {} } end
  start = at + 1
end
local wanted = {}
for at = 4, #ARGV do wanted[ARGV[at]] = true end
local size = tonumber(ARGV[3])
local page = redis.call('LRANGE', KEYS[1], start, start + size - 1)
local found = {}
for _, member in ipairs(page) do
  local payload = read_element(member)
  if payload and wanted[payload] then found[#found + 1] = member end
end
return { start + #page, page[#page] or ARGV[2], #page < size and 1 or 0, found }
