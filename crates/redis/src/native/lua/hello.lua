-- The heartbeat of a process: at open, before it first binds a lease in a partition, and every few seconds.
--
-- Keys    clients heartbeats meta queues and session:PROCESS of the directory
-- A.process its id; A.client its name: the earlier process of this name is dead. `clients` has the two last ones of a name,
--         so that a repeated call gets the same answer; names of dead processes are removed there
-- A.session partitions in which it binds leases from now on, each as `index/queue`; A.has if it assumes that others are entered
--         here
-- A.partitions the default number of partitions of a queue: all processes must agree, as long as there are
--         queues
-- A.silent a process without a heartbeat for this many ms is dead. Silence counts while Redis could receive heartbeats:
--         from the instant `w` of `meta` on, since when one has arrived each A.silent / 2 ms, the last one at `t`. After
--         an outage, or when the clock steps, all were silent, and it counts from then
-- Reply   `partitions` alone: the default of the others; else `before`, the process that had the name; `gone`, those that
--         are; `forgotten`: nothing is known of the process any more, and A.session was not noted: it must say all of them anew
-- Cost    O(log n) and a partition of A.session
know('zset', 'heartbeats')
know('hash', 'clients')
-- Removes names whose processes were freed of all that was bound to them: they are of no more use. It picks more at
-- random than are added, so there are never many more than are in use.
local FEW, SOME = 32, 8
local function forget_clients()
  if call('HLEN', P .. 'clients') <= FEW then
    return
  end
  local names = redis.pcall('HRANDFIELD', P .. 'clients', -SOME)
  -- A user that was made for an earlier version may not run this command; then they stay.
  for _, name in ipairs(names.err and {} or names) do
    local process = string.sub(call('HGET', P .. 'clients', name) or '', 1, #A.process)
    if name ~= A.client and not call('ZSCORE', P .. 'heartbeats', process) and call('EXISTS', P .. 'session:' .. process) == 0 then
      call('HDEL', P .. 'clients', name)
    end
  end
end

local parts = P .. 'session:' .. A.process
if A.session then
  know('set', 'session:' .. A.process)
end
if A.partitions then
  local known = tonumber(call('HGET', P .. 'meta', 's') or A.partitions)
  if known ~= A.partitions and call('EXISTS', P .. 'queues') == 1 then
    out.partitions = known
    return cmsgpack.pack(out)
  end
end
write_though_full()
if A.partitions then
  call('HSET', P .. 'meta', 'v', 1, 's', A.partitions)
end
if A.client then
  local last = call('HGET', P .. 'clients', A.client) or ''
  local is_again = string.sub(last, 1, #A.process) == A.process
  local before = string.sub(last, is_again and #A.process + 1 or 1, is_again and -1 or #A.process)
  out.before = before ~= '' and before or nil
  call('HSET', P .. 'clients', A.client, A.process .. before)
  forget_clients()
end
if A.has and call('EXISTS', parts) == 0 then
  out.forgotten = true
else
  for _, part in ipairs(A.session or {}) do
    call('SADD', parts, part)
  end
end
local heard = call('HMGET', P .. 'meta', 't', 'w')
local last, since = tonumber(heard[1]), tonumber(heard[2])
if not (last and since) or last > now or now - last > A.silent / 2 then
  since = now
  -- After a step back they would count as alive for as long as the step was.
  for _, ahead in ipairs(call('ZRANGEBYSCORE', P .. 'heartbeats', '(' .. string.format('%.0f', now), '+inf', 'LIMIT', 0, 1000)) do
    call('ZADD', P .. 'heartbeats', now, ahead)
  end
end
call('HSET', P .. 'meta', 't', now, 'w', since)
call('ZADD', P .. 'heartbeats', now, A.process)
if now - since >= A.silent then
  -- Others each time: the ones that cannot be freed, because a node is away, must not hide the rest.
  local dead = call('ZCOUNT', P .. 'heartbeats', '-inf', now - A.silent)
  local from = dead > 16 and now % dead or 0
  out.gone = call('ZRANGEBYSCORE', P .. 'heartbeats', '-inf', now - A.silent, 'LIMIT', from, 16)
end
return cmsgpack.pack(out)
