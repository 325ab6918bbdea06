-- How every script on a partition begins: what it was called with, whether it was called before, its settings.
--
-- KEYS[1]  the partition's prefix, `dwell:{tag}:`; every key of the partition is made from it
-- KEYS[2]  its key `m`: see `Scripts::command`
-- ARGV[1]  arguments, packed: `l` and `q` name lane and number of the call, `c` (14 bytes) the call among all, `W` the spread that the client believes
--          in, `D` the settings in force where the queue has none of its own; the rest is the script's
-- ARGV[2…] what a script takes beside them, as it is
-- Reply    a packed table: `now`; `lapsed`, leases that ran out meanwhile; `deaths` and `discards`, how many messages died and were
--          discarded by it, if any: attempts, lapse, expiry, buried; `dead_ttl`, `dead_max`, `on_expiry`, asked. `retain`: more dead ones
--          are past the queue's retention; and
--          `spread` alone: the client believes in another spread, and nothing was done; with `moves`: it is being changed
--          `more` alone: there is more that time has brought about than one call may take on; call again
local P = KEYS[1]
local call = redis.call
local A = cmsgpack.unpack(ARGV[1])
local out = { now = now }

-- Somebody else has written under our prefix. Nothing is changed then: a script knows all that it may touch before it
-- writes, for no command that fails takes back what went before it.
local function foreign(what)
  error('DWELLFOREIGN ' .. what, 0)
end

-- What was packed by a script or a client of ours.
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

-- Know that a key has its type, if it is there. So does whoever has read from it.
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

-- Know all keys of the partition, but `m`, which is read here, and `l` and `x`, which `touch` reads.
local HASHES = { 'S', 'B', 'H', 'k', 't', 'a', 'w', 'N', 'Z' }
local ZSETS = { 'f', 'n', 's', 'u', 'o', 'r', 'd', 'y', 'g', 'h', 'K', 'T' }
local knows_all
local function know_all()
  if knows_all then
    return
  end
  for _, name in ipairs(HASHES) do
    know_hash(name)
  end
  for _, name in ipairs(ZSETS) do
    know_zset(name)
  end
  knows_all = true
end

-- Does something to each of some items, and answers where they stand or at their places. What is foreign about one is said
-- of that one, and the others go on.
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

local M = call('HMGET', P .. 'm', 'v', 'g', 'o', 'e', 'f', 'h', 'n', 'j')
if M[1] and M[1] ~= '1' and M[1] ~= '2' and M[1] ~= '3' then
  return redis.error_reply('DWELLVERSION layout ' .. string.gsub(M[1], '%W', '?') .. ' is not known to this version of dwell')
end
local own = M[3] and read(M[3], 'the field o of ' .. P .. 'm') or {}
-- A pause that has ended is no setting any more.
if own.pause and own.pause > 0 and own.pause <= now then
  own.pause = A.D.pause ~= 0 and 0 or nil
end
-- Pending and dead messages of an earlier epoch were swept away: they are there, and count as gone.
local epoch, dead_epoch = tonumber(M[4] or 0), tonumber(M[5] or 0)
if not (epoch and dead_epoch and tonumber(M[2] or 0) and tonumber(M[6] or 0) and tonumber(M[7] or 0)) then
  foreign('of the fields e, f, g, h and n of ' .. P .. 'm one is no number')
end

-- A call that was answered, and whose answer was lost, gets it again. A lane has one call at a time, so its last
-- answer is the only one that can be asked for. What comes with a lower number than that was held up on its way, and
-- its caller has given it up or made it again: done now, it would be done twice.
local repeated, last
if A.l then
  last = call('HGET', P .. 'a', A.l)
  if last then
    local high, low = struct.unpack('>I4I4', last)
    local own_high, own_low = struct.unpack('>I4I4', A.q)
    if own_high < high or (own_high == high and own_low < low) then
      return redis.error_reply('DWELLLATE the call comes after one that was made later')
    end
    if own_high == high and own_low == low then
      repeated = call('HGET', P .. 'a', A.l .. 'r')
      call('PEXPIRE', P .. 'a', 60000)
      -- A take has kept the ids alone: it reads the messages again. What was too long is not kept.
      if (not A.token or A.id) and repeated ~= '' then
        return repeated
      end
    end
  end
end

-- A partition whose queue's spread is being changed is closed: `spread.rs` tells how it opens again.
if A.W and (M[8] or A.W ~= (own.spread or A.D.spread)) then
  out.spread, out.moves = own.spread or A.D.spread, M[8] and true
  return cmsgpack.pack(out)
end

-- Forgets lanes that nobody has called by for a minute: their processes have ended, or call by others. More of those that
-- it looks at are picked at random than come to be, so there are never many more than are in use. What an older version has
-- written does not tell when: it is told now.
local KEPT_MS, FEW, SOME = 60000, 32, 8
local function forget_lanes()
  if call('HLEN', P .. 'a') <= FEW then
    return
  end
  local names = redis.pcall('HRANDFIELD', P .. 'a', -SOME)
  -- A user that was made for an earlier version may not ask so; then they stay.
  for _, name in ipairs(names.err and {} or names) do
    -- A lane has 10 bytes, or 12 where a process has very many; its answer lies under one byte more.
    local lane = string.sub(name, 1, #name - #name % 2)
    local called = #name >= 10 and #name <= 13 and call('HGET', P .. 'a', lane)
    local counted = #name == 15 and call('HGET', P .. 'a', name)
    if counted and #counted > 6 and struct.unpack('>I6', counted) + KEPT_MS < now then
      call('HDEL', P .. 'a', name)
    elseif called and #called == 8 then
      call('HSET', P .. 'a', lane, called .. struct.pack('>I6', now))
    elseif called and #called == 14 and struct.unpack('>I6', called, 9) + KEPT_MS < now then
      call('HDEL', P .. 'a', lane, lane .. 'r')
    end
  end
end

-- Keeps what a repeated call is answered with.
local function keep_answer(packed)
  if A.l then
    call('HSET', P .. 'a', A.l, A.q .. struct.pack('>I6', now), A.l .. 'r', #packed <= 65536 and packed or '')
    call('PEXPIRE', P .. 'a', KEPT_MS)
    if not last or string.byte(A.q, 8) % 32 == 0 then
      forget_lanes()
    end
  end
end

local function answer()
  local packed = cmsgpack.pack(out)
  -- What has changed nothing may happen twice.
  if not is_refused then
    keep_answer(packed)
  end
  return packed
end

-- Whether a registration was given up: another process has let go of the queue since it was made. The client is told which was
-- the last one that was: a directory that has lost it must not give out lower ones.
local function is_given_up(reg)
  local last_one = tonumber(call('HGET', P .. 'a', 'g') or 0) or 0
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

-- What one partition has of a number that its queue has a limit of: an even share, rounded up. nil if there is no limit.
local function share(name)
  local most = setting(name)
  return most and math.ceil(most / setting('spread'))
end

-- What has died, and what was discarded, is counted, and the client adds that up. The places are those of the reply. A call that is
-- made again, since its answer was lost, says what it has counted the first time as well: that is kept for a minute.
local LAPSED, TTL, MAX, ON_EXPIRY, ASKED = 2, 1, 2, 3, 4
local counter = A.c and 'c' .. A.c
local counted_before = counter and call('HGET', P .. 'a', counter)
if counted_before then
  local both = read(string.sub(counted_before, 7), 'a field of ' .. P .. 'a')
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
    if call('HSET', P .. 'a', counter, kept) == 1 then
      call('PEXPIRE', P .. 'a', KEPT_MS)
      forget_lanes()
    end
  end
end

-- The first write of all scripts but those that put. Redis out of memory refuses a write that may take more, unless
-- the script has written already: so puts are refused as a whole, and takes and acks go on.
local function write_though_full()
  call('HDEL', P .. 'm', '')
end
