-- Hands out due messages, or returns what could be handed out.
--
-- Keys    meta records bodies headers due due-index due-index-until pending pending-urgent pending-later ready ready-by-due leases waiters calls; keys expiries session-leases dead dead-by-due dead-keys where time has brought something about
-- A.max   how many, by the room for leases, at most 255; A.want how many are wanted; A.bytes how many bytes of bodies,
--         but one in any case unless A.some were handed out before; A.lease length, if asked for;
--         A.token the first 14 bytes of the leases' tokens; A.session the process, if they are bound to it; A.holder the holder, if the take names one
-- A.cap   how many leases there may be here
-- A.ended leases that ran out in the calls before, which said `more`
-- A.peek  hand nothing out, only return what comes first
-- A.wait  how many takes of the client wait here, A.process its id: noted if there is nothing
-- Reply   to a peek `ids`, and `items` of each: {priority, due, length of the body}. Else an array: first what is packed,
--         then of each its record of form 4, or {record, body, headers}, packed; `on` if the script has done its
--         share, or was called again and had nothing, and there may be more to hand out; `next` when there may be more, if nothing was handed out; `full` if
--         something could be and there are A.cap leases: then `next` is when one of them ends; `capped` if the queue's own setting
--         allows no more of them: the same
-- Cost    O(log n) a message, about 3 µs, or 12 where it is not fresh, or A.holder is given
write_though_full()

-- Replied without packing, after the packed part.
local replies = { '' }

-- A repeated call gets what it was handed out before, as far as that is still leased; the other leases have run out.
-- It reads that before time acts, which may take more than one call, and only this one knows what was handed out.
local before = repeated and repeated ~= '' and read(repeated, 'a field of ' .. P .. 'calls') or {}
if before[1] then
  for _, id in ipairs(before) do
    local field = string.sub(id, 9)
    local record = call('HGET', P .. 'records', field)
    local r = record and unpacked(record, field)
    if r and r.i == id and r.s == 2 and string.sub(r.T, 1, 14) == A.token and r.D > now then
      replies[#replies + 1] = string.byte(record) == HELD and record or cmsgpack.pack(shown(r))
    end
  end
  out.next = not replies[2] and next_instant() or nil
  out.on = #replies - 1 < #before
  replies[1] = cmsgpack.pack(out)
  return replies
end
if not touch(nil, true) then
  return cmsgpack.pack(out)
end

-- The limits for slow messages: SLOW of them per call, and SLOW_BYTES of their bodies, but one in any case.
local SLOW, SLOW_BYTES = 32, 262144

-- The messages that this call hands out: fresh ones, prepared for writing, and the others read. Nothing is written
-- before it is known that all can be.
local function gather(entries, lease)
  local records
  if is_mixed then
    local fields = {}
    for _, entry in ipairs(entries) do
      if #entry == 16 then
        fields[#fields + 1] = string.sub(entry, 9)
      end
    end
    records = fields[1] and { fields = fields, of = call('HMGET', P .. 'records', unpack(fields)) }
  end
  local deadline = math.min(now + lease, MAX_MS)
  local text = string.format('%.0f', deadline)
  local start, most = A.token .. '\0', A.bytes or math.huge
  local tail = struct.pack('>I6I6', deadline, lease) .. (A.session or NOBODY)
  local ready = { held = {}, ends = {}, session = A.session and {}, count = 0, slow = {} }
  local held, ends, session, slow, n = ready.held, ready.ends, ready.session, ready.slow, 0
  local bytes, slow_bytes, read, ids = 0, 0, 0, out.ids
  -- A loop over every message: each call and each string in it counts.
  local sub, char, form = string.sub, string.char, string.char(HELD)
  for index = 1, #entries do
    local entry = entries[index]
    if #entry ~= 16 and not A.holder then
      check_fresh(entry)
      bytes = bytes + #entry - 22
      if bytes > most and (index > 1 or A.some) then
        break
      end
      local id, place = sub(entry, 1, 16), char(index)
      local record = form .. start .. place .. entry .. tail
      held[n + 1], held[n + 2] = sub(entry, 9, 16), record
      ends[n + 1], ends[n + 2] = text, id .. start .. place
      if session then
        session[n + 1], session[n + 2] = 0, A.session .. id
      end
      n = n + 2
      ids[index], replies[index + 1] = id, record
    else
      local place = #slow + 1
      local r
      if #entry ~= 16 then
        -- A record of form 4 has no room for a holder.
        r = fresh(entry)
      else
        read = read + 1
        r = decoded(records and records.of[read], records and records.fields[read] or sub(entry, 9))
      end
      check_headers(r)
      local length = body_length(r)
      bytes, slow_bytes = bytes + length, slow_bytes + length
      if bytes > most and (index > 1 or A.some) then
        break
      end
      if place > SLOW or (place > 1 and slow_bytes > SLOW_BYTES) then
        out.on = true
        break
      end
      slow[place] = { index, r }
    end
  end
  ready.count = n / 2
  return ready
end

local LONG = string.rep('-', 65)

-- Blocks that need no entry in `due-index` any more, if all that is in `due` from now on is due as late as the message with
-- this id, or later.
local function blocks_over(id)
  local due = string.format('%.0f', (struct.unpack('>I6', id)))
  return call('ZRANGEBYSCORE', P .. 'due-index-until', '-inf', '(' .. due, 'LIMIT', 0, 4)
end

-- Hands out fresh messages, all at once.
local function hand_out_fresh(ready)
  local held, ends, session, count = ready.held, ready.ends, ready.session, ready.count
  local over = blocks_over(ends[2 * count])
  know_hash('records')
  if over[1] then
    know_hash('due-index')
  end
  if session then
    know_zset('session-leases')
  end
  -- They are the first of it.
  call('ZREMRANGEBYRANK', P .. 'due', 0, count - 1)
  call('HSET', P .. 'records', unpack(held))
  if count >= 16 and call('EXISTS', P .. 'leases') == 0 then
    -- A sorted set of up to 128 short members is a list that each insert scans, unless its first one was long.
    call('ZADD', P .. 'leases', 'inf', LONG)
    call('ZADD', P .. 'leases', unpack(ends))
    call('ZREM', P .. 'leases', LONG)
  else
    call('ZADD', P .. 'leases', unpack(ends))
  end
  if session then
    call('ZADD', P .. 'session-leases', unpack(session))
  end
  if over[1] then
    call('ZREM', P .. 'due-index-until', unpack(over))
    call('HDEL', P .. 'due-index', unpack(over))
  end
end

local function peek(entries)
  local count = 0
  for _, entry in ipairs(entries) do
    local id = string.sub(entry, 1, 16)
    local r = #entry ~= 16 and fresh(entry) or lying(id)
    -- Reading a message applies time to it, which may end or bury it.
    if r and not r.s then
      count = count + 1
      out.ids[count] = id
      out.items[count] = { r.p or DEFAULT_PRIORITY, r.d, body_length(r) }
    end
  end
end

-- Removes processes that have not asked for a minute: they no longer wait. A process that begins to wait here checks
-- for them.
local function forget_waiters()
  local waiters, over = call('HGETALL', P .. 'waiters'), {}
  for index = 1, #waiters, 2 do
    local is_packed, entry = pcall(cmsgpack.unpack, waiters[index + 1])
    local until_ms = is_packed and type(entry) == 'table' and tonumber(entry[2])
    if waiters[index] ~= 'at' and until_ms and until_ms < now then
      over[#over + 1] = waiters[index]
    end
  end
  for first = 1, #over, 1000 do
    call('HDEL', P .. 'waiters', unpack(over, first, math.min(first + 999, #over)))
  end
end

local function hand_out(max)
  local entries = heads(max)
  if not entries[1] then
    return
  end
  if A.peek then
    return peek(entries)
  end
  if repeated then
    -- The reply was that there is nothing. This may be the first try, which arrives late and without a caller: the
    -- client calls again, under another number.
    out.on = true
    return
  end
  local lease = setting('lease')
  local ready = gather(entries, A.lease or lease)
  if ready.slow[1] then
    know_all()
  end
  if ready.count > 0 then
    hand_out_fresh(ready)
  end
  local last_fresh
  for _, entry in ipairs(ready.slow) do
    local index, r = entry[1], entry[2]
    last_fresh = r.fresh and r.i or last_fresh
    unplace_pending(r)
    r.t = (r.t or 0) + 1
    place_leased(r, A.token .. string.char(0, index), A.lease or r.L or lease, A.session, A.holder)
    save(r)
    out.ids[index] = r.i
    replies[index + 1] = cmsgpack.pack(shown(r))
  end
  local over = last_fresh and blocks_over(last_fresh) or {}
  if over[1] then
    call('ZREM', P .. 'due-index-until', unpack(over))
    call('HDEL', P .. 'due-index', unpack(over))
  end
end

-- Where not all that time has brought about is done yet: whether the first messages are as of now, and there are any.
-- Messages that have lapsed and were not processed are handed out after them.
local function are_current(max)
  local entries, seen, are_all = heads(max), 0, true
  for _, entry in ipairs(entries) do
    if #entry == 16 and seen < SLOW then
      seen = seen + 1
      local r = lying(entry)
      are_all = r and r.s == nil and are_all
    end
  end
  return entries[1] and are_all
end

out.items, out.ids = {}, {}
if not is_paused() and A.max > 0 then
  if not ripen() or (catch_up and not are_current(A.want or A.max)) then
    hint()
    out.more = true
    return cmsgpack.pack(out)
  end
  -- Leases that ran out here make room for others.
  local max = math.min(A.want or A.max, A.max + out.lapsed + (A.ended or 0))
  local leased, own_cap = in_force(), share('max_leased')
  local room = A.cap - leased
  if own_cap and leased >= own_cap then
    -- As if paused, until a lease ends.
    out.capped = true
  elseif room > 0 then
    hand_out(math.min(max, room, own_cap and own_cap - leased or room))
  else
    out.full = heads(1)[1] and true
  end
end
if not out.ids[1] or A.peek then
  local is_full = out.full or out.capped
  out.next = not is_full and next_instant() or tonumber(call('ZRANGE', P .. 'leases', 0, 0, 'WITHSCORES')[2]) or nil
  if A.wait then
    local at = is_full and FULL or out.next or MAX_MS
    local added = call('HSET', P .. 'waiters', 'at', string.format('%.0f', at), A.process, cmsgpack.pack({ A.wait, now + 60000 }))
    call('PEXPIRE', P .. 'waiters', 120000)
    if added > 0 then
      forget_waiters()
    end
  end
end
if A.peek then
  return cmsgpack.pack(out)
end
keep_answer(cmsgpack.pack(out.ids))
out.ids, out.items = nil, nil
replies[1] = cmsgpack.pack(out)
return replies
