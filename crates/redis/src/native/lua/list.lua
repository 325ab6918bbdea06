-- One page of the messages in a state, by (due, id).
--
-- Keys    meta records bodies headers, and due pending pending-urgent pending-later ready-by-due (scheduled, ready), leases (leased) or dead-by-due (dead)
-- A.state 0 scheduled, 1 ready, 2 leased, 3 dead; A.max how many; A.due and A.id the last one of the page before
-- A.bytes how many bytes of bodies, but one message in any case
-- A.score and A.after, for leased: the deadline and id to go on from; A.max how many leases are looked at, or fewer
-- Reply   `bare`; `items`: record, body, headers of each, or {'foreign', what is wrong, due, id} of one that cannot be read,
--         or {'past', false, due, id} of one whose time is over;
--         and one more than the page holds is shown by `more_left`.
--         For leased: `refs`, {deadline, id, due, length of the body} by deadline, from which the client makes its pages; the
--         due of one that cannot be read is the one that it was put with
-- Cost    O(log n + page), and about 1 ms for 256 KiB of bodies; leased: about 3 µs each, and 13 of those whose records are read
if not touch() then
  return cmsgpack.pack(out)
end

-- Up to `count` of the members from rank `first` on, before rank `last`: {due, id, the member if it is in `due`}.
local function part(key, first, last, count)
  local found = {}
  last = math.min(last, first + count) - 1
  if last < first then
    return found
  end
  local members, is_fresh = call('ZRANGE', key, first, last, 'WITHSCORES'), key == P .. 'due'
  for index = 1, #members, 2 do
    found[#found + 1] = { tonumber(members[index + 1]), string.sub(members[index], 1, 16), is_fresh and members[index] }
  end
  return found
end

local function merged(parts, count)
  local all = {}
  for _, found in ipairs(parts) do
    for _, entry in ipairs(found) do
      all[#all + 1] = entry
    end
  end
  table.sort(all, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[2] ~= b[2] and precedes(a[2], b[2])
  end)
  while #all > count do
    all[#all] = nil
  end
  return all
end

local function page(count)
  if A.state == 3 then
    local key = P .. 'dead-by-due'
    local first = A.id and rank_after(key, A.due, A.id) or 0
    return part(key, first, call('ZCARD', key), count)
  end
  local parts = {}
  for _, name in ipairs({ 'due', 'pending', 'pending-urgent', 'pending-later' }) do
    local key = P .. name
    local due = call('ZCOUNT', key, '-inf', now)
    local first = A.id and rank_after(key, A.due, A.id) or 0
    if A.state == 1 then
      parts[#parts + 1] = part(key, first, due, count)
    else
      parts[#parts + 1] = part(key, math.max(first, due), call('ZCARD', key), count)
    end
  end
  if A.state == 1 then
    local key = P .. 'ready-by-due'
    local first = A.id and rank_after(key, A.due, A.id) or 0
    parts[#parts + 1] = part(key, first, call('ZCARD', key), count)
  end
  return merged(parts, count)
end

-- Reads a message of this list, and returns the length of its body; nil, and what is wrong, if its record is not
-- ours, or false if it is past retention. Other errors are not about one message.
local function try(entry)
  local is_read, r, length = pcall(function()
    local r = entry[3] and fresh(entry[3]) or lying(entry[2])
    return r, r and body_length(r) or false
  end)
  if is_read then
    return r, length
  end
  local said = string.match(type(r) == 'table' and r.err or tostring(r), 'DWELLFOREIGN (.*)')
  if not said then
    error(r, 0)
  end
  return nil, said
end

out.bare = is_bare()
if A.state == 2 then
  out.refs = {}
  local key = P .. 'leases'
  local first = A.after and rank_after(key, A.score, A.after) or 0
  -- A record of form 4 has its body and BESIDES bytes. Of the others, which are read, one call reads at most READ.
  local BESIDES, READ = 59, 64
  local members, read_now = call('ZRANGE', key, first, first + A.max - 1, 'WITHSCORES'), 0
  for index = 1, #members, 2 do
    local id, due, length = string.sub(members[index], 1, 16), nil, -1
    if #members[index] == 32 then
      due, length = (struct.unpack('>I6', id)), call('HSTRLEN', P .. 'records', string.sub(id, 9)) - BESIDES
    end
    if length < 0 then
      read_now = read_now + 1
      if read_now > READ then
        out.more_left = true
        break
      end
      local r, said_or_length = try({ nil, id })
      if r then
        due, length = r.d, said_or_length
      else
        due, length = (struct.unpack('>I6', id)), 0
      end
    end
    out.refs[#out.refs + 1] = { tonumber(members[index + 1]), id, due, length }
  end
  out.more_left = out.more_left or #members == 2 * A.max
  hint()
  return cmsgpack.pack(out)
end
out.items = {}
local bytes = 0
for index, entry in ipairs(page(A.max + 1)) do
  if index > A.max then
    out.more_left = true
    break
  end
  local r, said_or_length = try(entry)
  bytes = bytes + (r and said_or_length or 0)
  if index > 1 and bytes > A.bytes then
    out.more_left = true
    break
  end
  out.items[index] = r and shown(r) or { said_or_length and 'foreign' or 'past', said_or_length, entry[1], entry[2] }
end
hint()
return cmsgpack.pack(out)
