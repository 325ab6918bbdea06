-- Hands out due messages, or says what could be.
--
-- Keys    m S B H s u o r d l w a; k x y g h where time has brought something about
-- A.max   how many, by the room for leases, at most 255; A.want how many are wanted; A.bytes how many bytes of bodies,
--         but one in any case unless A.some were handed out before; A.lease length, if asked for;
--         A.token the first 14 bytes of the leases' tokens; A.bound the process, if they are bound to it
-- A.ended leases that ran out in the calls before, which said `more`
-- A.peek  hand nothing out, only say what comes first
-- A.wait  how many takes of the client wait here, A.process who it is: noted if there is nothing
-- Reply   to a peek `ids`, and `items` of each: {priority, due, length of the body}. Else an array: first what is packed,
--         with `ids`, then of each its record of form 2, or {record, body, headers}, packed; `on` if the script has done its share and there may be more to hand out;
--         `next` when there may be more, if nothing was handed out
-- Cost    O(log n) a message, about 4 µs, or 12 where its record is in none of the short forms
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end

-- Replied as they are, behind what is packed.
local replies = { '' }

-- A call that is made again gets what it was handed out before, as far as it is held yet; the others have run out.
local before = repeated and repeated ~= '' and cmsgpack.unpack(repeated) or {}
if before[1] then
  out.ids = {}
  for _, id in ipairs(before) do
    local field = string.sub(id, 9)
    local record = call('HGET', P .. 'S', field)
    local r = record and unpacked(record, field)
    if r and r.i == id and r.s == 2 and string.sub(r.T, 1, 14) == A.token then
      out.ids[#out.ids + 1] = id
      replies[#replies + 1] = string.byte(record) == HELD and record or cmsgpack.pack(shown(r))
    end
  end
  out.next = not out.ids[1] and next_instant() or nil
  replies[1] = cmsgpack.pack(out)
  return replies
end

-- What takes longer: at most so many of them a call, and so many bytes of their bodies, but one in any case.
local SLOW, SLOW_BYTES = 64, 1048576

-- How many of the first ones this call hands out; and those among them that are not of form 1, read: nothing is
-- written before it is known that all can be.
local function share(fields, records)
  local bytes, slow, slow_bytes = 0, {}, 0
  for index, record in ipairs(records) do
    local length
    if string.byte(record) == FRESH then
      length = #record - 19
    else
      local r = decoded(record, fields[index])
      length = body_length(r)
      slow[#slow + 1] = { index, r }
      slow_bytes = slow_bytes + length
    end
    bytes = bytes + length
    local is_cut = A.bytes and bytes > A.bytes and (index > 1 or A.some)
    if is_cut or #slow > SLOW or (#slow > 1 and slow_bytes > SLOW_BYTES) then
      out.on = not is_cut
      if string.byte(record) ~= FRESH then
        slow[#slow] = nil
      end
      return index - 1, slow
    end
  end
  return #records, slow
end

-- Hands out those of form 1, all at once.
local function hand_out_fresh(count, ids, fields, records, lease)
  local deadline = math.min(now + lease, MAX_MS)
  local text = string.format('%.0f', deadline)
  local start = string.char(HELD) .. A.token
  local middle = struct.pack('>I6I6', deadline, lease) .. (A.bound or NOBODY)
  local held, ends, bound, n = {}, {}, {}, 0
  for index = 1, count do
    local record = records[index]
    if string.byte(record) == FRESH then
      record = start .. string.char(0, index) .. middle .. record
      replies[index + 1] = record
      held[n + 1], held[n + 2] = fields[index], record
      ends[n + 1], ends[n + 2] = text, ids[index]
      if A.bound then
        bound[n + 1], bound[n + 2] = 0, A.bound .. ids[index]
      end
      n = n + 2
    end
  end
  if n > 0 then
    call('HSET', P .. 'S', unpack(held))
    call('ZADD', P .. 'l', unpack(ends))
    if A.bound then
      call('ZADD', P .. 'y', unpack(bound))
    end
  end
end

local function hand_out(max)
  local ids, urgent, usual = heads(max)
  if not ids[1] then
    return
  end
  local fields = {}
  for index, id in ipairs(ids) do
    fields[index] = string.sub(id, 9)
  end
  local records = call('HMGET', P .. 'S', unpack(fields))
  if A.peek then
    out.ids = ids
    for index, field in ipairs(fields) do
      local r = decoded(records[index], field)
      out.items[index] = { r.p or DEFAULT_PRIORITY, r.d, body_length(r) }
    end
    return
  end
  local count, slow = share(fields, records)
  -- Those that lie in `s` are the first of it.
  local of_s = math.min(count - urgent, usual)
  if of_s > 0 then
    call('ZREMRANGEBYRANK', P .. 's', 0, of_s - 1)
  end
  local lease = setting('lease')
  hand_out_fresh(count, ids, fields, records, A.lease or lease)
  for _, entry in ipairs(slow) do
    local index, r = entry[1], entry[2]
    unplace_pending(r)
    r.t = (r.t or 0) + 1
    place_leased(r, A.token .. string.char(0, index), A.lease or r.L or lease, A.bound)
    save(r)
    replies[index + 1] = cmsgpack.pack(shown(r))
  end
  out.ids = { unpack(ids, 1, count) }
end

out.items, out.ids = {}, {}
if not is_paused() and A.max > 0 then
  if not ripen() then
    out.more = true
    return cmsgpack.pack(out)
  end
  -- Leases that ran out here make room for others.
  hand_out(math.min(A.want or A.max, A.max + out.lapsed + (A.ended or 0)))
end
if not out.ids[1] or A.peek then
  out.next = next_instant()
  if A.wait then
    call('HSET', P .. 'w', 'at', out.next or MAX_MS, A.process, cmsgpack.pack({ A.wait, now + 60000 }))
    call('PEXPIRE', P .. 'w', 120000)
  end
end
if A.peek then
  return cmsgpack.pack(out)
end
keep_answer(cmsgpack.pack(out.ids))
replies[1] = cmsgpack.pack(out)
return replies
