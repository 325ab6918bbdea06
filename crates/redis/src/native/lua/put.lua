-- Puts messages.
--
-- Keys    meta records bodies headers keys idempotency idempotency-until due due-index due-index-until pending pending-urgent pending-later ready expiries waiters calls, of the partition; leases ready-by-due dead dead-by-due dead-keys session-leases where time has brought something about
-- A.count if all have a body of at most 1 KiB, an instant, and nothing else: how many. Then ARGV[2…] are two of each: its
--         instant as text, or one that does not matter; and its id or, where it comes after a delay, the last 8 bytes
--         of it, before its body. A.delays, if there are any: of each a delay in ms, -1 less a level, or false;
--         A.first the first instant; A.dues what `due-index` is to have of them: of each block its number as text, places and dues,
--         and the latest of these. Else
-- A.items each: `n` the last 8 bytes of its id, `b` body, `w` `v` when, `k` key, `c` what to do where it is taken
--         (0 reject, 1 replace, 2 keep), `h` headers, `p` priority unless 1024, `L` lease, `M` limit of attempts,
--         `x` expiry, `t` idempotency key, `g` the digest of what it stands for; `bad` refuses it unless that key is known;
--         `r` is an answer that its idempotency key is to get, and nothing is put
-- A.least and A.most of their numbers
-- A.shard the partition's number; A.reg the queue's registration, if it was made just now; A.full there are as many
--         queues as may be; A.others how many messages are pending in the queue's other partitions
-- A.idempotency_keys how many may be remembered here
-- A.past  the partitions that follow from earlier numbers of them were asked for the idempotency keys
-- Reply   `enter`: register the queue first; `others`: count the other partitions first; `past`: ask for the idempotency keys where
--         these numbers had put them first; else
--         `bare` if the queue was registered just now for nothing;
--         `all` that were put: they are created, under their ids; else
--         `items` each: true (created under its id), the instant of one that was created after a delay,
--         {'ok', id, due, outcome, replaced} (0 created, 1 replaced, 2 kept) or a refusal: {word, …}, of which {'mismatch', id} is
--         that of an idempotency key which stands for another put
-- Cost    O(log n) a message: about 2 µs of A.count, about 10 of A.items

-- The put's own data is written first: a Redis out of memory refuses it. If time has brought something about, this
-- comes before.
local function write_unless_full()
  call('ZADD', P .. 'due', 'XX', 0, '')
end
-- A limit counts messages that have expired and are still stored.
if not touch(write_unless_full, not setting('pending')) then
  return cmsgpack.pack(out)
end
if not M[2] and (not A.reg or is_given_up(A.reg)) then
  out.enter = true
  return cmsgpack.pack(out)
end
local max_pending, idempotency_ms = setting('pending'), setting('idempotency')
if max_pending and not A.others and setting('partitions') > 1 then
  out.others = true
  return cmsgpack.pack(out)
end

-- A key that was remembered before the number of partitions was changed may be in another partition.
if A.items and not A.past then
  local has_idempotency_key = false
  for _, item in ipairs(A.items) do
    has_idempotency_key = has_idempotency_key or (item.t and true)
  end
  local past = has_idempotency_key and past_partitions() or {}
  if past[1] then
    out.past = {}
    for index, entry in ipairs(past) do
      out.past[index] = entry[1]
    end
    return cmsgpack.pack(out)
  end
end

-- No message here has a number above `h` of `meta`, so those of a process that puts alone need not be looked up. A
-- partition that had messages before there was an `h` gets none.
local highest = tonumber(M[6] or (call('EXISTS', P .. 'records', P .. 'due') == 0 and 0) or -1)
local is_new = highest >= 0 and A.least and A.least > highest

-- For each number, by the last 8 bytes of its id, whether another message has it: then a failover has lost the latest
-- steps of the counter.
local function taken_of(fields)
  if is_new then
    return {}
  end
  local taken, places = call('HMGET', P .. 'records', unpack(fields)), {}
  for index, field in ipairs(fields) do
    local block, place = place_of(field)
    places[block] = places[block] or {}
    places[block][place] = index
  end
  for block, indexes in pairs(places) do
    local dues = call('HGET', P .. 'due-index', block)
    for at = 1, dues and #dues or 0, 7 do
      local index = indexes[string.byte(dues, at)]
      if index and not taken[index] then
        taken[index] = find_fresh(numbered(dues, at, fields[index]))
      end
    end
  end
  return taken
end

-- Removes more than a put adds, so that each put pays the same small cost.
local function forget_idempotency_keys()
  for _, idempotency_key in ipairs(call('ZRANGEBYSCORE', P .. 'idempotency-until', '-inf', now, 'LIMIT', 0, 3)) do
    call('ZREM', P .. 'idempotency-until', idempotency_key)
    call('HDEL', P .. 'idempotency', idempotency_key)
  end
end

local function remember(idempotency_key, digest, reply)
  if not idempotency_key or idempotency_ms == 0 then
    return
  end
  call('HSET', P .. 'idempotency', idempotency_key, cmsgpack.pack({ reply, now + idempotency_ms, digest }))
  call('ZADD', P .. 'idempotency-until', now + idempotency_ms, idempotency_key)
  -- A queue that is no longer used gets no scripts that remove them.
  call('PEXPIRE', P .. 'idempotency', 691200000)
  call('PEXPIRE', P .. 'idempotency-until', 691200000)
end

local function keep(r, due, idempotency_key, digest)
  if r.s == 2 then
    return { 'leased', r.i }
  end
  if due < r.d then
    unplace_pending(r)
    r.d = due
    pend(r)
    note_ready(r, now)
    save(r)
  end
  local reply = { 'ok', r.i, r.d, 2 }
  remember(idempotency_key, digest, reply)
  return reply
end

local function put(item)
  if item.t then
    forget_idempotency_keys()
    local known = recall(item.t, item.g)
    -- A copy of another partition's answer does not show that the message is there: a failover may have lost it. It
    -- answers no put, and a later answer replaces it.
    local is_copy = known and known[1] == 'ok' and (struct.unpack('>I2', known[2], 7)) ~= 32768 + A.shard
    local is_stale = is_copy and (item.r and known[2] ~= item.r[2])
    local is_put = not item.r and not item.bad
    if known and not is_stale and not (is_copy and is_put) then
      return known
    end
  end
  if item.r then
    remember(item.t, item.g, item.r)
    return item.r
  end
  if item.bad then
    return { 'bad' }
  end
  local due, refusal = instant(item.w, item.v)
  if not due then
    return refusal
  end
  -- A past instant is due now.
  if item.x and item.x <= math.max(due, now) then
    return { 'expires', math.max(due, now) }
  end
  if item.t and idempotency_ms > 0 and call('HLEN', P .. 'idempotency') >= A.idempotency_keys then
    return { 'idempotency_keys' }
  end
  local owner = item.k and find_key(item.k)
  if owner then
    if item.c == 0 then
      return { 'key', owner.i }
    end
    if item.c == 2 then
      return keep(owner, due, item.t, item.g)
    end
  end
  if A.full and is_bare() then
    return { 'queues' }
  end
  local leaves = owner and owner.s == nil
  if max_pending and not leaves and pending() + (A.others or 0) >= max_pending then
    return { 'pending', max_pending }
  end
  if taken_of({ item.n })[1] then
    return { 'number', highest }
  end
  if owner then
    if owner.s == 2 then
      owner.K, owner.k = true, nil
      save(owner)
    else
      remove_pending(owner)
    end
  end
  local id = struct.pack('>I6I2', due, 32768 + A.shard) .. item.n
  local r = { i = id, d = due, c = now, p = item.p, k = item.k, x = item.x, L = item.L, M = item.M }
  if item.h then
    r.h = true
    call('HSET', P .. 'headers', item.n, item.h)
  end
  if item.k then
    call('HSET', P .. 'keys', item.k, id)
  end
  call('HSET', P .. 'bodies', item.n, item.b)
  pend(r)
  save(r)
  local reply = { 'ok', id, due, owner and 1 or 0, owner and owner.i }
  remember(item.t, item.g, reply)
  return reply
end

-- Updates `meta` for what was put.
local function note_put()
  if A.reg and (not M[2] or tonumber(M[2]) < A.reg) then
    call('HSET', P .. 'meta', 'v', 1, 'g', A.reg)
  end
  if highest >= 0 and A.most and A.most > highest then
    call('HSET', P .. 'meta', 'h', string.format('%.0f', A.most))
  end
end

-- Puts into `due`, and enters into `due-index` when numbers are due: for each block its number, their places and dues, the
-- latest of them.
local function put_fresh(places, dues)
  if not places[1] then
    return note_put()
  end
  local told_before = {}
  for index = 1, #dues, 3 do
    told_before[index] = call('HGET', P .. 'due-index', dues[index]) or ''
  end
  know_zset('due-index-until')
  sleeping()
  call('ZADD', P .. 'due', unpack(places))
  note_put()
  for index = 1, #dues, 3 do
    call('HSET', P .. 'due-index', dues[index], told_before[index] .. dues[index + 1])
    call('ZADD', P .. 'due-index-until', 'GT', dues[index + 2], dues[index])
  end
end

-- Puts messages with only a body and an instant, where none of them can be refused: all at once.
local function put_all(count)
  local created, places = struct.pack('>I6', now), {}
  for at = 2, 2 * count, 2 do
    places[at - 1], places[at] = ARGV[at], ARGV[at + 1] .. created
  end
  put_fresh(places, A.dues)
  earliest = earliest and math.min(earliest, A.first) or A.first
  out.all = count
end

-- Puts messages with only a body, and an instant or a delay: each is checked.
local function put_each(count, is_full, room)
  local created, places, n = struct.pack('>I6', now), {}, 0
  local fields, dues, latest = {}, {}, {}
  for index = 1, count do
    local what = ARGV[2 * index + 1]
    fields[index] = A.delays and A.delays[index] and string.sub(what, 1, 8) or string.sub(what, 9, 16)
  end
  local taken = taken_of(fields)
  -- For the last delay: its instant, that as text, the first bytes of the ids; or why there is none.
  local delay, later, text, head, refusal
  for index = 1, count do
    local at, what, after, refused = ARGV[2 * index], ARGV[2 * index + 1], A.delays and A.delays[index], nil
    if after then
      if after ~= delay then
        delay = after
        later, refusal = instant(after < 0 and 3 or 2, after < 0 and -1 - after or after)
        text = later and string.format('%.0f', later)
        head = later and struct.pack('>I6I2', later, 32768 + A.shard)
      end
      refused = refusal
    end
    if refused then
      out.items[index] = refused
    elseif is_full then
      out.items[index] = { 'queues' }
    elseif room and n >= 2 * room then
      out.items[index] = { 'pending', max_pending }
    elseif taken[index] then
      out.items[index] = { 'number', highest }
    else
      if after then
        at, what = text, head .. what
      end
      places[n + 1], places[n + 2] = at, what .. created
      n = n + 2
      local due = after and later or tonumber(at)
      local block, place = place_of(fields[index])
      dues[block] = (dues[block] or '') .. string.char(place) .. string.sub(what, 1, 6)
      latest[block] = math.max(latest[block] or 0, due)
      if not earliest or due < earliest then
        earliest = due
      end
      out.items[index] = not after or due
    end
  end
  local told_now = {}
  for block, of_block in pairs(dues) do
    local place = #told_now
    told_now[place + 1], told_now[place + 2], told_now[place + 3] = block, of_block, latest[block]
  end
  put_fresh(places, told_now)
end

out.items = {}
if A.count then
  local is_full = A.full and is_bare()
  local room = max_pending and max_pending - pending() - (A.others or 0)
  if is_new and not is_full and not room and not A.delays then
    put_all(A.count)
  else
    put_each(A.count, is_full, room)
  end
else
  know_all()
  -- Tokens are removed before anything is put.
  write_unless_full()
  each(A.items, put)
  if not is_refused then
    note_put()
  end
end
out.bare = A.reg and is_bare() or nil
hint()
return answer()
