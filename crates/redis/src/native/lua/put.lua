-- Puts messages.
--
-- Keys    m S B H k t T s u o r x w a, of the partition; l d g h y where time has brought something about
-- A.items each: `n` the last 8 bytes of its id, `b` body, `w` `v` when, `k` key, `c` what to do where it is taken
--         (0 reject, 1 replace, 2 keep), `h` headers, `p` priority unless 1024, `L` lease, `M` limit of attempts,
--         `x` expiry, `t` token; `bad` refuses it unless its token is known;
--         `r` is an answer that its token is to get, and nothing is put
-- A.shard the partition's number; A.reg the queue's registration, if it was made just now; A.full there are as many
--         queues as may be; A.others how many messages are pending in the queue's other partitions
-- Reply   `enter`: register the queue first; `others`: count the other partitions first; else
--         `bare` if the queue was registered just now for nothing;
--         `items` each: {'ok', id, due, outcome, replaced} (0 created, 1 replaced, 2 kept) or a refusal: {word, …}
-- Cost    O(log n) a message, about 10 µs
call('SETRANGE', P .. '0', 0, '')
if not touch() then
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

if A.reg and (not M[2] or tonumber(M[2]) < A.reg) then
  call('HSET', P .. 'm', 'v', 1, 'g', A.reg)
end
out.items = {}
for index, item in ipairs(A.items) do
  out.items[index] = put(item)
end
out.bare = A.reg and is_bare() or nil
hint()
return answer()
