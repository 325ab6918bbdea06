-- The keys in which a message is stored, by its state. Every index is maintained here.
--
--   due            pending and fresh:            score due, member the message, see `record.lua`
--   pending        pending with priority 1024:   score due, member id
--   pending-urgent pending, more urgent:         score due, member id and priority (4 bytes)
--   pending-later  pending, less urgent:         the same
--   ready          pending-urgent and pending-later that a take found due: score priority, member due (6 bytes) and id
--   ready-by-due   the same ones by due:         score due, member id
--   expiries       pending with an expiry:       score expiry, member id
--   leases         leased:                       score deadline, member id; of a record of form 4, id and token
--   session-leases session leases:               score 0, member process (8 bytes) and id
--   dead           dead, oldest first:           score death, member id
--   dead-by-due    dead by due:                  score due, member id
--   keys           keys of live messages:        key to id
--   dead-keys      those of dead ones:           score 0, member length of the key (2), key, death (6) and id

-- The first instant at which a message that was placed here is due, or its lease runs out.
local earliest = nil

-- Whether a lease has ended, so that there is room for another. A take that waits for that alone sleeps until FULL.
local has_room = false
local FULL = MAX_MS + 1

local function lane(r)
  if not r.p then
    return P .. 'pending'
  end
  return P .. (r.p < DEFAULT_PRIORITY and 'pending-urgent' or 'pending-later')
end

local function lane_member(r)
  return r.p and r.i .. struct.pack('>I4', r.p) or r.i
end

local function ready_member(r)
  return struct.pack('>I6', r.d) .. r.i
end

local function place_pending(r)
  r.s = nil
  r.E = epoch > 0 and epoch or nil
  call('ZADD', lane(r), r.d, lane_member(r))
  if r.x then
    call('ZADD', P .. 'expiries', r.x, r.i)
  end
  if not earliest or r.d < earliest then
    earliest = r.d
  end
end

local function unplace_pending(r)
  if r.fresh then
    call('ZREM', P .. 'due', r.fresh)
    r.fresh = nil
    return
  end
  if call('ZREM', lane(r), lane_member(r)) == 0 and r.p then
    call('ZREM', P .. 'ready', ready_member(r))
    call('ZREM', P .. 'ready-by-due', r.i)
  end
  if r.x then
    call('ZREM', P .. 'expiries', r.i)
  end
end

local function place_leased(r, token, lease_ms, session, holder)
  r.s, r.E = 2, nil
  r.T, r.w, r.B, r.o = token, lease_ms, session, holder
  r.D = math.min(now + lease_ms, MAX_MS)
  call('ZADD', P .. 'leases', r.D, r.i)
  if r.B then
    call('ZADD', P .. 'session-leases', 0, r.B .. r.i)
  end
  if not earliest or r.D < earliest then
    earliest = r.D
  end
end

local function unplace_leased(r)
  call('ZREM', P .. 'leases', r.i, r.i .. r.T)
  if r.B then
    call('ZREM', P .. 'session-leases', r.B .. r.i)
  end
  r.T, r.w, r.B, r.D, r.o = nil, nil, nil, nil, nil
  has_room = true
end

-- The member of a dead message in `dead-keys`.
local function dead_member(r)
  return dead_key(r.k) .. struct.pack('>I6', r.A) .. r.i
end

local function unindex_dead(r)
  call('ZREM', P .. 'dead', r.i)
  call('ZREM', P .. 'dead-by-due', r.i)
  if r.k and not r.K then
    call('ZREM', P .. 'dead-keys', dead_member(r))
  end
end

local function unplace_dead(r)
  unindex_dead(r)
  r.R, r.A = nil, nil
end

-- Removes dead messages by their ids, with all their entries. A foreign record stays where it is, and nothing refers
-- to it any more.
local function discard(ids)
  local fields, gone, keys = {}, {}, {}
  for index, id in ipairs(ids) do
    fields[index] = string.sub(id, 9)
  end
  local records = call('HMGET', P .. 'records', unpack(fields))
  for index, id in ipairs(ids) do
    local is_read, r = pcall(decoded, records[index], fields[index])
    if is_read and r.i == id and r.s == 3 then
      gone[#gone + 1] = fields[index]
      if r.k and not r.K then
        keys[#keys + 1] = dead_member(r)
      end
    end
  end
  call('ZREM', P .. 'dead', unpack(ids))
  call('ZREM', P .. 'dead-by-due', unpack(ids))
  if gone[1] then
    call('HDEL', P .. 'records', unpack(gone))
    call('HDEL', P .. 'bodies', unpack(gone))
    call('HDEL', P .. 'headers', unpack(gone))
  end
  if keys[1] then
    call('ZREM', P .. 'dead-keys', unpack(keys))
  end
end

-- The latest death that is past the queue's retention; nil if there is none.
local function last_past_retention()
  local ttl = setting('dead_ttl')
  return ttl and string.format('%.0f', now - ttl)
end

-- If this message's death exceeds what the queue keeps, the oldest is removed: this one, if its death was noticed
-- late.
local function trim(r)
  local most = share('dead_max')
  if not most or call('ZCARD', P .. 'dead') <= most then
    return
  end
  local oldest = call('ZRANGE', P .. 'dead', 0, 0, 'WITHSCORES')
  local ttl = setting('dead_ttl')
  count('discards', ttl and tonumber(oldest[2]) + ttl <= now and TTL or MAX, 1)
  if oldest[1] == r.i then
    unindex_dead(r)
    r.gone = true
  else
    discard({ oldest[1] })
  end
end

-- Makes a live message dead; it is in no key. Its key is free. `cause` is where the death is counted.
local function die(r, reason, at, cause)
  if r.k and not r.K then
    call('HDEL', P .. 'keys', r.k)
  end
  r.s, r.R, r.A = 3, reason, at
  r.E = dead_epoch > 0 and dead_epoch or nil
  call('ZADD', P .. 'dead', at, r.i)
  call('ZADD', P .. 'dead-by-due', r.d, r.i)
  if r.k and not r.K then
    call('ZADD', P .. 'dead-keys', 0, dead_member(r))
  end
  count('deaths', cause, 1)
  trim(r)
end

-- A live message that is in no key has expired.
local function run_out(r)
  if setting('on_expiry') ~= 1 then
    return die(r, 3, r.x, 3)
  end
  if r.k and not r.K then
    call('HDEL', P .. 'keys', r.k)
  end
  r.gone, r.dropped = true, true
  count('discards', ON_EXPIRY, 1)
end

-- Places a live message that is no longer leased. If it has expired, it is dead, or removed.
local function pend(r)
  if r.x and r.x <= now then
    run_out(r)
  else
    place_pending(r)
  end
end

local function is_ready(r)
  return r.s == nil and not r.gone and r.d <= now
end

local function note_ready(r, since)
  if is_ready(r) and since > (r.y or 0) then
    r.y = since
  end
end

-- Removes a live message that is not leased.
local function remove_pending(r)
  unplace_pending(r)
  if r.k and not r.K then
    call('HDEL', P .. 'keys', r.k)
  end
  forget(r)
end

local function is_bare()
  return next(own) == nil and call('EXISTS', P .. 'due', P .. 'pending', P .. 'pending-urgent', P .. 'pending-later', P .. 'ready', P .. 'leases', P .. 'dead') == 0
end

-- The instant until which waiting takes sleep; false if there are none.
local asleep
local function sleeping()
  if asleep == nil then
    asleep = call('HGET', P .. 'waiters', 'at')
    asleep = asleep and (tonumber(asleep) or 0)
  end
  return asleep
end

-- Notifies waiting takes, if a message that was placed is due, or may come again, before that instant, or if they
-- wait for room.
local function hint()
  local at = (earliest or has_room) and sleeping()
  if at and ((earliest and earliest < at) or (has_room and at == FULL)) then
    call('PUBLISH', P .. 'waiters', '')
  end
end
