-- The beginning of every script on a partition: its arguments, whether it is a repeated call, the queue's settings.
--
-- KEYS[1]  the partition's prefix, `dwell:{tag}:`; every key of the partition is made from it
-- KEYS[2]  its key `meta`: see `Scripts::command`
-- ARGV[1]  arguments, packed: `l` and `q` name lane and number of the call, `c` (14 bytes) the call among all, `W` the number of partitions that the client
--          assumes, `D` the settings in force where the queue has none of its own; the rest is the script's
-- ARGV[2…] what a script takes beside them, as it is
-- Reply    a packed table: `now`; `lapsed`, leases that ran out meanwhile; `deaths` and `discards`, how many messages died and were
--          discarded by it, if any: attempts, lapse, expiry, buried; `dead_ttl`, `dead_max`, `on_expiry`, asked. `retain`: more dead ones
--          are past the queue's retention; and
--          `partitions` alone: the client assumes another number of partitions, and nothing was done; with `moves`: it is being changed
--          `more` alone: there is more that time has brought about than one call may take on; call again
local P = KEYS[1]
local call = redis.call
local A = cmsgpack.unpack(ARGV[1])
local out = { now = now }

-- Foreign data lies under our prefix. Nothing is changed then: a script checks all that it may touch before it
-- writes, for no command that fails undoes what went before it.
local function foreign(what)
  error('DWELLFOREIGN ' .. what, 0)
end

-- Unpacks what a script or a client of ours has packed.
local function read(packed, what)
  local is_packed, value = pcall(cmsgpack.unpack, packed)
  if not is_packed or type(value) ~= 'table' then
    foreign(what .. ' is in no form of ours')
  end
  return value
end

local function foreign_type(name, expected)
  foreign('the key ' .. P .. name .. ' is a ' .. call('TYPE', P .. name).ok .. ' and not a ' .. expected)
end

-- Checks that a key has its type, if it exists. A read from the key checks it as well.
local function know_hash(name)
  if type(redis.pcall('HLEN', P .. name)) ~= 'number' then
    foreign_type(name, 'hash')
  end
end

local function know_zset(name)
  if type(redis.pcall('ZCARD', P .. name)) ~= 'number' then
    foreign_type(name, 'zset')
  end
end

-- Checks all keys of the partition, except for `meta`, which is read here, and `leases` and `expiries`, which `touch` reads.
local knows_all
local function know_all()
  if knows_all then
    return
  end
  for _, name in ipairs({ 'records', 'bodies', 'headers', 'keys', 'idempotency', 'calls', 'waiters', 'due-index', 'purged' }) do
    know_hash(name)
  end
  for _, name in ipairs({ 'due', 'due-index-until', 'pending', 'pending-urgent', 'pending-later', 'ready', 'ready-by-due', 'session-leases', 'dead', 'dead-by-due', 'dead-keys', 'idempotency-until' }) do
    know_zset(name)
  end
  knows_all = true
end

-- Does something to each of some items, and answers at the items' indexes, or at their places. Foreign data under one
-- is the error of that one, and the others go on.
local is_refused
local function each(items, change, places)
  is_refused = true
  for index, item in ipairs(items) do
    local is_done, reply = pcall(change, item)
    if not is_done then
      local said = string.match(type(reply) == 'table' and reply.err or tostring(reply), 'DWELLFOREIGN (.*)')
      if not said then
        error(reply, 0)
      end
      reply = { 'foreign', said }
    end
    is_refused = is_refused and not is_done
    out.items[places and places[index] or index] = reply
  end
end

local M = call('HMGET', P .. 'meta', 'v', 'g', 'o', 'e', 'f', 'h', 'n', 'j')
if M[1] and M[1] ~= '1' then
  return redis.error_reply('DWELLVERSION layout ' .. string.gsub(M[1], '%W', '?') .. ' is not known to this version of dwell')
end
local own = M[3] and read(M[3], 'the field o of ' .. P .. 'meta') or {}
-- A pause that has ended is no longer a setting.
if own.pause and own.pause > 0 and own.pause <= now then
  own.pause = A.D.pause ~= 0 and 0 or nil
end
-- Pending and dead messages of an earlier epoch were removed: they are still stored, and count as gone.
local epoch, dead_epoch = tonumber(M[4] or 0), tonumber(M[5] or 0)
if not (epoch and dead_epoch and tonumber(M[2] or 0) and tonumber(M[6] or 0) and tonumber(M[7] or 0)) then
  foreign('of the fields e, f, g, h and n of ' .. P .. 'meta one is no number')
end

-- A call that was answered, and whose answer was lost, gets it again. A lane has one call at a time, so only its last
-- answer can be asked for. A call with a lower number was delayed on its way, and its caller has given it up or
-- repeated it: if it were done now, it would be done twice.
local repeated, last, counted_before
local counter = A.c and 'c' .. A.c
if A.l then
  local known = call('HMGET', P .. 'calls', A.l, counter or '')
  last, counted_before = known[1], known[2]
  if last then
    local high, low = struct.unpack('>I4I4', last)
    local own_high, own_low = struct.unpack('>I4I4', A.q)
    if own_high < high or (own_high == high and own_low < low) then
      return redis.error_reply('DWELLLATE the call comes after one that was made later')
    end
    if own_high == high and own_low == low then
      repeated = call('HGET', P .. 'calls', A.l .. 'r')
      call('PEXPIRE', P .. 'calls', 60000)
      -- A take has kept only the ids: it reads the messages again. An answer that was too long is not kept.
      if (not A.token or A.id) and repeated ~= '' then
        return repeated
      end
    end
  end
end

-- While the number of partitions of a queue is being changed, its partitions are closed: `repartition.rs` describes how they open again.
if A.W and (M[8] or A.W ~= (own.partitions or A.D.partitions)) then
  out.partitions, out.moves = own.partitions or A.D.partitions, M[8] and true
  return cmsgpack.pack(out)
end

-- Removes lanes without a call for a minute: their processes have ended, or use others. It picks more lanes at random
-- than are added, so there are never many more than are in use. The entries of an older version have no time: they
-- get one now.
local KEPT_MS, FEW, SOME = 60000, 32, 8
local function forget_lanes()
  if call('HLEN', P .. 'calls') <= FEW then
    return
  end
  local names = redis.pcall('HRANDFIELD', P .. 'calls', -SOME)
  -- A user that was made for an earlier version may not run this command; then they stay.
  for _, name in ipairs(names.err and {} or names) do
    -- A lane has 10 bytes, or 12 where a process has very many; its answer is stored under one byte more.
    local lane = string.sub(name, 1, #name - #name % 2)
    local called = #name >= 10 and #name <= 13 and call('HGET', P .. 'calls', lane)
    local counted = #name == 15 and call('HGET', P .. 'calls', name)
    if counted and #counted > 6 and struct.unpack('>I6', counted) + KEPT_MS < now then
      call('HDEL', P .. 'calls', name)
    elseif called and #called == 8 then
      call('HSET', P .. 'calls', lane, called .. struct.pack('>I6', now))
    elseif called and #called == 14 and struct.unpack('>I6', called, 9) + KEPT_MS < now then
      call('HDEL', P .. 'calls', lane, lane .. 'r')
    end
  end
end

-- Keeps the answer for a repeated call.
local function keep_answer(packed)
  if A.l then
    call('HSET', P .. 'calls', A.l, A.q .. struct.pack('>I6', now), A.l .. 'r', #packed <= 65536 and packed or '')
    -- A lane renews the expiry with its first call in each second of the clock, so at least a minute is left. What
    -- counts is not the time since its last call: a lane in steady use would never renew it.
    if not last or #last < 14 or math.floor(struct.unpack('>I6', last, 9) / 1000) ~= math.floor(now / 1000) then
      call('PEXPIRE', P .. 'calls', KEPT_MS + 1000)
    end
    if not last or string.byte(A.q, 8) % 32 == 0 then
      forget_lanes()
    end
  end
end

local function answer()
  local packed = cmsgpack.pack(out)
  -- A call that has changed nothing may happen twice.
  if not is_refused then
    keep_answer(packed)
  end
  return packed
end

-- Whether a registration was given up: another process has unregistered the queue since it was made. The reply has
-- the last one that was given up: a directory that has lost it must not give out lower ones.
local function is_given_up(reg)
  local last_one = tonumber(call('HGET', P .. 'calls', 'g') or 0) or 0
  out.given_up = reg <= last_one and last_one or nil
  return reg <= last_one
end

local function setting(name)
  local value = own[name]
  if value == nil then
    return A.D[name]
  end
  return value
end

-- The share of one partition in a limit of its queue: the same for each, rounded up. nil if there is no limit.
local function share(name)
  local most = setting(name)
  return most and math.ceil(most / setting('partitions'))
end

-- Deaths and discards are counted, and the client adds them up. The indexes are those of the reply. A call that is
-- repeated, since its answer was lost, returns its first counts as well: they are kept for a minute.
local LAPSED, TTL, MAX, ON_EXPIRY, ASKED = 2, 1, 2, 3, 4
if counter and not A.l then
  counted_before = call('HGET', P .. 'calls', counter)
end
if counted_before then
  local both = read(string.sub(counted_before, 7), 'a field of ' .. P .. 'calls')
  out.deaths, out.discards = both[1] or nil, both[2] or nil
end

local function count(what, place, number)
  if number == 0 then
    return
  end
  out[what] = out[what] or { 0, 0, 0, 0 }
  out[what][place] = out[what][place] + number
  if counter then
    local kept = struct.pack('>I6', now) .. cmsgpack.pack({ out.deaths or false, out.discards or false })
    if call('HSET', P .. 'calls', counter, kept) == 1 then
      call('PEXPIRE', P .. 'calls', KEPT_MS)
      forget_lanes()
    end
  end
end

-- The first write of all scripts but those that put. Redis out of memory refuses a write that may take more, unless
-- the script has written already: so puts are refused as a whole, and takes and acks go on.
local function write_though_full()
  call('HDEL', P .. 'meta', '')
end
