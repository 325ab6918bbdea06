-- Puts messages.
--
-- Keys    m S B H k t T s u o r x w a, of the partition; l d g h y where time has brought something about
-- A.ids   if all have a body of at most 1 KiB, an instant, and nothing else: their ids, or the last 8 bytes of these
--         where A.whens has no instant but a delay in ms or -1 less a level; ARGV[2…] their bodies, behind the first 8
--         bytes of the id where that is known; A.whens the instants as text; A.first the first of these; A.least and A.most
--         their numbers. Else
-- A.items each: `n` the last 8 bytes of its id, `b` body, `w` `v` when, `k` key, `c` what to do where it is taken
--         (0 reject, 1 replace, 2 keep), `h` headers, `p` priority unless 1024, `L` lease, `M` limit of attempts,
--         `x` expiry, `t` token; `bad` refuses it unless its token is known;
--         `r` is an answer that its token is to get, and nothing is put
-- A.shard the partition's number; A.reg the queue's registration, if it was made just now; A.full there are as many
--         queues as may be; A.others how many messages are pending in the queue's other partitions
-- Reply   `enter`: register the queue first; `others`: count the other partitions first; else
--         `bare` if the queue was registered just now for nothing;
--         `items` each: true (created under its id), the instant of one that was created after a delay,
--         {'ok', id, due, outcome, replaced} (0 created, 1 replaced, 2 kept) or a refusal: {word, …}
-- Cost    O(log n) a message: about 3 µs of A.ids, about 10 of A.items

-- What is put is written first: a Redis out of memory refuses it. If time brings something about, this goes before.
local function write_unless_full()
  call('SETRANGE', P .. '0', 0, '')
end
if not touch(write_unless_full) then
  return cmsgpack.pack(out)
end
if not M[2] and not A.reg then
  out.enter = true
  return cmsgpack.pack(out)
end
local max_pending, token_ms = setting('pending'), setting('token')
if max_pending and not A.others and setting('spread') > 1 then
  out.others = true
  return cmsgpack.pack(out)
end

local function recall(token)
  local packed = call('HGET', P .. 't', token)
  if packed then
    local known = cmsgpack.unpack(packed)
    if now < known[2] then
      return known[1]
    end
  end
end

-- More than it adds, so that forgetting costs each put the same little.
local function forget_tokens()
  for _, token in ipairs(call('ZRANGEBYSCORE', P .. 'T', '-inf', now, 'LIMIT', 0, 3)) do
    call('ZREM', P .. 'T', token)
    call('HDEL', P .. 't', token)
  end
end

local function remember(token, reply)
  if not token or token_ms == 0 then
    return
  end
  call('HSET', P .. 't', token, cmsgpack.pack({ reply, now + token_ms }))
  call('ZADD', P .. 'T', now + token_ms, token)
  -- Nobody sweeps a queue that is used no more.
  call('PEXPIRE', P .. 't', 691200000)
  call('PEXPIRE', P .. 'T', 691200000)
end

local function keep(r, due, token)
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
  remember(token, reply)
  return reply
end

local function put(item)
  if item.t then
    forget_tokens()
    local known = recall(item.t)
    if known then
      return known
    end
  end
  if item.r then
    remember(item.t, item.r)
    return item.r
  end
  if item.bad then
    return { 'bad' }
  end
  local due, refusal = instant(item.w, item.v)
  if not due then
    return refusal
  end
  if item.x and item.x <= due then
    return { 'expires', due }
  end
  local owner = item.k and find_key(item.k)
  if owner then
    if item.c == 0 then
      return { 'key', owner.i }
    end
    if item.c == 2 then
      return keep(owner, due, item.t)
    end
  end
  if A.full and is_bare() then
    return { 'queues' }
  end
  if max_pending then
    local leaves = owner and owner.s == nil and 1 or 0
    if pending() + (A.others or 0) - leaves >= max_pending then
      return { 'pending', max_pending }
    end
  end
  if call('HEXISTS', P .. 'S', item.n) == 1 then
    -- A failover has lost the counter's latest steps: this number is another message's.
    return { 'number' }
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
    call('HSET', P .. 'H', item.n, item.h)
  end
  if item.k then
    call('HSET', P .. 'k', item.k, id)
  end
  call('HSET', P .. 'B', item.n, item.b)
  pend(r)
  save(r)
  local reply = { 'ok', id, due, owner and 1 or 0, owner and owner.i }
  remember(item.t, reply)
  return reply
end

-- No message here has a number above `h` of `m`, so those of a process that puts alone need not be looked up. A partition
-- that had messages before there was an `h` gets none.
local highest = tonumber(M[6] or (call('EXISTS', P .. 'S') == 0 and 0) or -1)
local is_new = highest >= 0 and A.least and A.least > highest

-- Puts those that have a body and an instant alone: all of them are written at once, in form 1.
local function put_fresh(ids, whens)
  local fields = {}
  for index, id in ipairs(ids) do
    fields[index] = string.sub(id, -8)
  end
  local taken = is_new and {} or call('HMGET', P .. 'S', unpack(fields))
  local start = string.char(FRESH) .. struct.pack('>I6I4', now, epoch)
  local is_full = A.full and is_bare()
  local room = max_pending and max_pending - pending() - (A.others or 0)
  local records, places, n = {}, {}, 0
  if A.first and (not earliest or A.first < earliest) then
    earliest = A.first
  end
  -- Of the delay that came last: its instant, that as text, the first bytes of the ids; or why there is none.
  local delay, due, text, head, refusal
  for index, id in ipairs(ids) do
    local body, at = ARGV[index + 1], whens[index]
    local answer, refused = true, nil
    if type(at) == 'number' then
      if at ~= delay then
        delay = at
        due, refusal = instant(at < 0 and 3 or 2, at < 0 and -1 - at or at)
        text = due and string.format('%.0f', due)
        head = due and struct.pack('>I6I2', due, 32768 + A.shard)
      end
      refused = refusal
      if due then
        answer, at, id, body = due, text, head .. id, head .. body
      end
    end
    if refused then
      answer = refused
    elseif is_full then
      answer = { 'queues' }
    elseif room and n >= 2 * room then
      answer = { 'pending', max_pending }
    elseif taken[index] then
      answer = { 'number' }
    else
      records[n + 1], records[n + 2] = fields[index], start .. body
      places[n + 1], places[n + 2] = at, id
      n = n + 2
      if answer ~= true and (not earliest or answer < earliest) then
        earliest = answer
      end
    end
    out.items[index] = answer
  end
  if n > 0 then
    call('HSET', P .. 'S', unpack(records))
    call('ZADD', P .. 's', unpack(places))
  end
end

if A.reg and (not M[2] or tonumber(M[2]) < A.reg) then
  call('HSET', P .. 'm', 'v', 2, 'g', A.reg)
elseif M[1] == '1' then
  call('HSET', P .. 'm', 'v', 2)
end
if highest >= 0 and A.most and A.most > highest then
  call('HSET', P .. 'm', 'h', string.format('%.0f', A.most))
end
out.items = {}
if A.ids then
  put_fresh(A.ids, A.whens)
else
  -- Tokens are forgotten before anything is put.
  write_unless_full()
  for index, item in ipairs(A.items) do
    out.items[index] = put(item)
  end
end
out.bare = A.reg and is_bare() or nil
hint()
return answer()
