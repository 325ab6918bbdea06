-- Settles leased messages, or ends their leases.
--
-- Keys    meta records bodies headers keys pending pending-urgent pending-later expiries leases session-leases dead dead-by-due dead-keys waiters calls
-- A.acks  if there is nothing but acks: of each its id and the lease's token; A.fields the last 8 bytes of the ids; else
-- A.items each: `i` id, `T` token, `a` action (0 ack, 1 retry, 2 release, 3 bury, 4 extend, 5 give back),
--         `v` delay or length in ms, `e` error, `p` priority, `z` 32 random bits for the jitter; `bad`
--         refuses it whatever its lease. One with `n` for `T` ends the lease by which the message was handed out for the n-th time
-- Reply   `all` that were acked; else `items` each: true (an ack), {'gone'}, {'scheduled', due}, {'ready'}, {'dead', reason}, {'leased', deadline} or a refusal
--         {'lost'}, {'bad'}, {'range', delay}, {'missing'}, {'unheld'}, {'changed', takes}; `bare` if the partition has nothing any more
-- Cost    O(log n) a message: an ack of a record of form 4 about 1 µs, all else about 10
write_though_full()
if not touch(nil, true) then
  return cmsgpack.pack(out)
end

local function set_priority(r, priority)
  if priority then
    r.p = priority ~= DEFAULT_PRIORITY and priority or nil
  end
end

local function standing(r)
  if r.dropped then
    return { 'gone' }
  end
  if r.s == 3 then
    return { 'dead', r.R }
  end
  if r.s == 2 then
    return { 'leased', r.D }
  end
  if is_ready(r) then
    return { 'ready' }
  end
  return { 'scheduled', r.d }
end

local function settle(item)
  if item.bad then
    return { 'bad' }
  end
  know_all()
  local r = load(item.i)
  if item.n then
    if not r or r.s ~= 2 then
      return { r and 'unheld' or 'missing' }
    end
    if (r.t or 0) ~= item.n then
      return { 'changed', r.t or 0 }
    end
    lapse(r, now)
    return standing(r)
  end
  if not r or r.s ~= 2 or r.T ~= item.T then
    return { 'lost' }
  end
  local action, delay = item.a, item.v
  if action == 0 then
    unplace_leased(r)
    if r.k and not r.K then
      call('HDEL', P .. 'keys', r.k)
    end
    forget(r)
    return { 'gone' }
  end
  if action == 4 then
    local token, length, session, holder = r.T, delay or r.w, r.B, r.o
    unplace_leased(r)
    place_leased(r, token, length, session, holder)
    save(r)
    return standing(r)
  end
  if action == 1 and not delay then
    delay = backoff(setting('backoff'), (r.a or 0) + 1, item.z)
  end
  if (action == 1 or action == 2) and delay and now + delay > MAX_MS then
    return { 'range', delay }
  end
  unplace_leased(r)
  set_priority(r, item.p)
  if item.e then
    r.e = item.e
  end
  if action == 1 then
    local is_dead = is_last(r)
    r.a = (r.a or 0) + 1
    if is_dead then
      -- It keeps its instant.
      die(r, 1, now, 1)
    else
      r.d = now + delay
      pend(r)
    end
  elseif action == 2 then
    r.d = delay and now + delay or r.d
    r.r = (r.r or 0) + 1
    pend(r)
  elseif action == 3 then
    r.a = (r.a or 0) + 1
    r.b = (r.b or 0) + 1
    die(r, 2, now, 4)
  else
    pend(r)
  end
  if action ~= 5 then
    note_ready(r, now)
  end
  save(r)
  return standing(r)
end

-- Acks all messages with records of form 4 at once: their members in `leases` prove that they are leased under their
-- tokens, and that there is nothing else to do, whatever their records say. The others are acked one by one.
local function ack(proofs, fields)
  local has_session_leases = call('EXISTS', P .. 'session-leases') == 1
  know_hash('records')
  if has_session_leases then
    know_zset('session-leases')
  end
  local ended = call('ZREM', P .. 'leases', unpack(proofs))
  has_room = has_room or ended > 0
  if ended == #proofs and not has_session_leases then
    call('HDEL', P .. 'records', unpack(fields))
    out.all = #proofs
    return
  end
  local records = call('HMGET', P .. 'records', unpack(fields))
  local gone, session, seen, others, places = {}, {}, {}, {}, {}
  local are_all = ended == #proofs
  for index, proof in ipairs(proofs) do
    local id, token = string.sub(proof, 1, 16), string.sub(proof, 17)
    local record, field = records[index], fields[index]
    local is_held = are_all or (record and string.sub(record, 1, 33) == string.char(HELD) .. token .. id)
    if is_held and not seen[field] then
      seen[field] = true
      gone[#gone + 1] = field
      local process = record and string.sub(record, -8) or NOBODY
      if process ~= NOBODY then
        session[#session + 1] = process .. id
      end
      out.items[index] = true
    elseif seen[field] then
      out.items[index] = { 'lost' }
    else
      others[#others + 1] = { a = 0, i = id, T = token }
      places[#others] = index
    end
  end
  if gone[1] then
    call('HDEL', P .. 'records', unpack(gone))
  end
  if session[1] then
    call('ZREM', P .. 'session-leases', unpack(session))
  end
  each(others, settle, places)
  is_refused = is_refused and ended == 0 and not gone[1]
  if ended > #gone then
    -- A lease whose message cannot be read goes on; its deadline has been removed with it.
    for place, other in ipairs(others) do
      if out.items[places[place]][1] == 'foreign' then
        call('ZADD', P .. 'leases', math.min(now + setting('lease'), MAX_MS), other.i .. other.T)
      end
    end
  end
end

-- Whether a take waits for room is read before anything is written.
sleeping()
out.items = {}
if A.acks and catch_up then
  -- The members of `leases` prove nothing now: a lease may have run out.
  local acks = {}
  for index, proof in ipairs(A.acks) do
    acks[index] = { a = 0, i = string.sub(proof, 1, 16), T = string.sub(proof, 17) }
  end
  each(acks, settle)
elseif A.acks then
  ack(A.acks, A.fields)
else
  each(A.items, settle)
end
out.bare = is_bare()
hint()
return answer()
