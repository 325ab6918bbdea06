-- Reads a page of the pending list, and returns the elements with one of the given payloads.
-- KEYS  1 pending
-- ARGV  1 index to start at  2 the element before that, or ''  3 elements per page
--       4 bytes per page, not counting the first element  5... payloads; none for any
-- reply {index to continue at, or -1 if the element before is gone and the walk starts over, last element read,
--        whether this was the end, elements found}
-- cost  O(page), and a search of at most 10,000 entries for the element before, if others were removed before it
local start, page, is_end = read_page(KEYS[1], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))
if not start then return { -1, '', 0, {} } end
local wanted = {}
for at = 5, #ARGV do wanted[ARGV[at]] = true end
local found = #ARGV == 4 and page or {}
for _, member in ipairs(#ARGV > 4 and page or {}) do
  local payload = read_element(member)
  if payload and wanted[payload] then found[#found + 1] = member end
end
return { start + #page, page[#page] or ARGV[2], is_end and 1 or 0, found }
