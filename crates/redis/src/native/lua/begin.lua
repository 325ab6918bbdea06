-- How every script on a partition begins: what it was called with, whether it was called before, its settings.
--
-- KEYS[1]  the partition's prefix, `dwell:{tag}:`; every key of the partition is made from it
-- KEYS[2]  its key `m`: see `Scripts::command`
-- ARGV[1]  arguments, packed: `l` and `q` name lane and number of the call, `W` the spread that the client believes
--          in, `D` the settings in force where the queue has none of its own; the rest is the script's
-- ARGV[2…] what a script takes beside them, as it is
-- Reply    a packed table: `now`; `lapsed`, leases that ran out meanwhile; and
--          `spread` alone: the client believes in another spread, and nothing was done
--          `more` alone: there is more that time has brought about than one call may take on; call again
local P = KEYS[1]
local call = redis.call
local A = cmsgpack.unpack(ARGV[1])
local out = { now = now }

local M = call('HMGET', P .. 'm', 'v', 'g', 'o', 'e', 'f', 'h')
if M[1] and M[1] ~= '1' and M[1] ~= '2' and M[1] ~= '3' then
  return redis.error_reply('DWELLVERSION layout ' .. M[1] .. ' is not known to this version of dwell')
end
local own = M[3] and cmsgpack.unpack(M[3]) or {}
-- A pause that has ended is no setting any more.
if own.pause and own.pause > 0 and own.pause <= now then
  own.pause = A.D.pause ~= 0 and 0 or nil
end
-- Pending and dead messages of an earlier epoch were swept away: they are there, and count as gone.
local epoch, dead_epoch = tonumber(M[4] or 0), tonumber(M[5] or 0)

-- A call that was answered, and whose answer was lost, gets it again. A lane has one call at a time, so its last
-- answer is the only one that can be asked for. What comes with a lower number than that was held up on its way, and
-- its caller has given it up or made it again: done now, it would be done twice.
local repeated
if A.l then
  local last = call('HGET', P .. 'a', A.l)
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

if A.W and A.W ~= (own.spread or A.D.spread) then
  out.spread = own.spread or A.D.spread
  return cmsgpack.pack(out)
end

-- Keeps what a repeated call is answered with.
local function keep_answer(packed)
  if A.l then
    call('HSET', P .. 'a', A.l, A.q, A.l .. 'r', #packed <= 65536 and packed or '')
    call('PEXPIRE', P .. 'a', 60000)
  end
end

local function answer()
  local packed = cmsgpack.pack(out)
  keep_answer(packed)
  return packed
end

local function setting(name)
  local value = own[name]
  if value == nil then
    return A.D[name]
  end
  return value
end

-- The first write of all scripts but those that put. Redis out of memory refuses a write that may take more, unless
-- the script has written already: so puts are refused as a whole, and takes and acks go on.
local function write_though_full()
  call('UNLINK', P .. '0')
end
