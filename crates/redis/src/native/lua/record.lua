-- A message's record: its state and what it was put with. Most messages never have more than an instant and a short
-- body; until such a message is handed out, it is stored whole in the sorted set `due`, and nowhere else:
--
--   fresh id (16 bytes), body, created (6). Its score is its due, the instant that its id begins with, so the order of `due`
--         is that of (due, id).
--
-- All others have a record in the hash `records` under the last 8 bytes of their id. Its first byte is its form:
--
--   4     one that was fresh, and is leased for the first time:
--         lease's token (16), then its member of `due`, deadline (6), length (6), process that it is bound to or zeros (8)
--   else  whatever has happened to it: packed fields, and its body in the hash `bodies`
--
-- No script takes a fresh one or form 4 apart to hand it out and to ack it. The fields, those that have their default are
-- absent:
--
--   i id, 16 bytes        d due            c created          p priority, if not 1024
--   s state: nil pending, 2 leased, 3 dead                    E epoch in which it became pending or dead
--   a attempts spent      x expires        k key              K it gave its key up, and has none
--   L its own lease       M its own limit of attempts, 0 none h it has headers
--   t takes  l lapses  r releases  b buries  v revives        e last error
--   y last made ready other than by its instant
--   leased: T token, D deadline, w length, B process that it is bound to, o its holder, if its take has named one
--   dead: R reason (1 attempts spent, 2 buried, 3 expired), A when
--
-- Pending is scheduled before `d` and ready from then on. What was read from another form than fields has its body with
-- it, as `body`, and one that lies in `due` what lies there, as `fresh`; neither is ever packed. One that is to be removed and not
-- saved has `gone`, and `dropped` if that is since it has expired.
--
-- A number is in the last 8 bytes of an id. When those of fresh messages are due is in the hash `due-index`: block of 256
-- numbers → of each, its place in the block (1 byte) and its due (6). Its entries for messages that are no longer in
-- `due` are harmless, and are removed when `due-index-until`, block → the latest due in it, shows that all of a block have left `due`.
local HELD = 4
local NOBODY = string.rep('\0', 8)
local MAX_MS = 253402300799999
local DEFAULT_PRIORITY = 1024

-- Nothing is written before this is checked for all that is read.
local function check_fresh(member)
  -- An id is a UUID of version 8, which its 7th and 9th bytes show.
  local version, _, variant = string.byte(member, 7, 9)
  if #member < 22 or version < 128 or version > 143 or variant < 128 or variant > 191 then
    foreign(P .. 'due has a member that is no message')
  end
end

-- Reads a member of `due`.
local function fresh(member)
  check_fresh(member)
  return {
    i = string.sub(member, 1, 16),
    d = (struct.unpack('>I6', member)),
    c = (struct.unpack('>I6', member, #member - 5)),
    body = string.sub(member, 17, -7),
    fresh = member,
  }
end

local function hex(bytes)
  return (string.gsub(bytes, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

-- The maximum of a number in a record, the maximum length of a text, and the fields that are true or false.
-- Most calls read no such record, so the tables are made for the first one.
local MOST = 9007199254740992
local NUMBERS, TEXTS, SIGNS
local function make_limits()
  NUMBERS = {
    d = MAX_MS, c = MAX_MS, x = MAX_MS, y = MAX_MS, A = MAX_MS, D = MAX_MS, w = MOST, L = MOST, p = 4294967295, M = 4294967295,
    a = MOST, t = MOST, l = MOST, r = MOST, b = MOST, v = MOST, E = MOST, s = 3, R = 3,
  }
  TEXTS = { i = 16, T = 16, B = 8, k = 512, e = MOST, o = 128 }
  SIGNS = { K = true, h = true }
end

-- Whether fields are those of a message's record: of the types on which the code that hands it out and reads it
-- relies.
local function is_record(r, field)
  if not NUMBERS then
    make_limits()
  end
  for name, value in pairs(r) do
    local most, longest = NUMBERS[name], TEXTS[name]
    if most then
      if type(value) ~= 'number' or not (value >= 0 and value <= most and value % 1 == 0) then
        return false
      end
    elseif longest then
      if type(value) ~= 'string' or #value > longest then
        return false
      end
    elseif SIGNS[name] and type(value) ~= 'boolean' then
      return false
    end
  end
  if not (r.i and r.d and r.c) or #r.i ~= 16 or string.sub(r.i, 9) ~= field or r.k == '' then
    return false
  end
  local version, _, variant = string.byte(r.i, 7, 9)
  if version < 128 or version > 143 or variant < 128 or variant > 191 then
    return false
  end
  if r.s == 2 then
    return r.T and #r.T == 16 and r.D and r.w and (not r.B or #r.B == 8)
  end
  return not r.s or (r.s == 3 and r.R and r.R > 0 and r.A)
end

local function decoded(packed, field)
  if not packed then
    foreign(P .. 'records has no field ' .. hex(field) .. ' for a message that lies in order')
  end
  local form = string.byte(packed)
  if form == HELD and #packed >= 59 and string.byte(packed, 24) > 127 and string.sub(packed, 26, 33) == field then
    local r = fresh(string.sub(packed, 18, -21))
    r.fresh = nil
    r.s, r.t = 2, 1
    r.T = string.sub(packed, 2, 17)
    r.D, r.w = struct.unpack('>I6I6', packed, #packed - 19)
    local process = string.sub(packed, -8)
    r.B = process ~= NOBODY and process or nil
    return r
  end
  local what = 'the field ' .. hex(field) .. ' of ' .. P .. 'records'
  local r = read(packed, what)
  if not is_record(r, field) then
    foreign(what .. ' is no record of a message')
  end
  return r
end

local function unpacked(packed, field)
  local r = decoded(packed, field)
  if r.s == 2 then
    return r
  end
  local current = r.s == 3 and dead_epoch or epoch
  if (r.E or 0) ~= current then
    return nil
  end
  return r
end

-- Whether an id comes before another. Strings are compared as numbers: Lua would compare them by the server's locale.
local function precedes(a, b)
  local a1, a2, a3, a4 = struct.unpack('>I4I4I4I4', a)
  local b1, b2, b3, b4 = struct.unpack('>I4I4I4I4', b)
  if a1 ~= b1 then return a1 < b1 end
  if a2 ~= b2 then return a2 < b2 end
  if a3 ~= b3 then return a3 < b3 end
  return a4 < b4
end

-- The entry of a sorted set ordered by (due, id) at a rank: its member, and the id with which that begins.
local function at_rank(key, rank)
  local member = call('ZRANGE', key, rank, rank)[1]
  return member, string.sub(member, 1, 16)
end

-- The rank of the first member after (due, id): by a search among those of the same due.
local function rank_after(key, due, id)
  local low, high = call('ZCOUNT', key, '-inf', '(' .. string.format('%.0f', due)), call('ZCOUNT', key, '-inf', due)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local _, member = at_rank(key, middle)
    if precedes(id, member) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- The member of `due` with this id, if there is one.
local function find_fresh(id)
  local key, due = P .. 'due', string.format('%.0f', (struct.unpack('>I6', id)))
  local found = call('ZRANGEBYSCORE', key, due, due, 'LIMIT', 0, 2)
  for _, member in ipairs(found) do
    if string.sub(member, 1, 16) == id then
      return member
    end
  end
  if #found == 2 then
    local after = rank_after(key, tonumber(due), id)
    if after > 0 then
      local member, before = at_rank(key, after - 1)
      return before == id and member or nil
    end
  end
end

-- Whether a message is dead and past retention: it counts as gone, though it may be stored for a while.
local function is_past_retention(r)
  local ttl = r.s == 3 and setting('dead_ttl')
  return ttl and r.A + ttl <= now
end

-- Applies time to one message: where `touch` has left something undone, a script does it for each message that it
-- loads.
local catch_up

-- The message with an id; or nil, and whether time has removed it.
local function load(id)
  if #id ~= 16 then
    foreign('something under ' .. P .. ' names a message that cannot be')
  end
  local field = string.sub(id, 9)
  local packed = call('HGET', P .. 'records', field)
  local r = packed and unpacked(packed, field)
  if r and r.i == id then
    if catch_up then
      catch_up(r)
    end
    if r.gone or is_past_retention(r) then
      return nil, true
    end
    return r
  end
  -- These have no lease and no expiry.
  local member = find_fresh(id)
  return member and fresh(member)
end

-- A message that is in an index, and so must exist; nil if time has removed it.
local function lying(id)
  local r, is_gone = load(id)
  return r or (not is_gone and decoded(nil, string.sub(id, 9))) or nil
end

-- The block of a number and its place there, by the last 8 bytes of its id.
local function place_of(field)
  local high, low = struct.unpack('>I4I4', field)
  local number = (high - 2147483648) * 4294967296 + low - 1
  return string.format('%.0f', math.floor(number / 256)), number % 256
end

-- The id of a message in `due-index`, at an index in its block's entry. A.shard is the partition's number.
local function numbered(dues, at, field)
  return string.sub(dues, at + 1, at + 6) .. struct.pack('>I2', 32768 + A.shard) .. field
end

-- The message with a number, by the last 8 bytes of its id. A block's entry in `due-index` is read once per script.
local told = {}
local function load_numbered(field)
  local packed = call('HGET', P .. 'records', field)
  local r = packed and unpacked(packed, field)
  if r then
    return not is_past_retention(r) and r or nil
  end
  local block, place = place_of(field)
  if not told[block] then
    told[block] = call('HGET', P .. 'due-index', block) or ''
  end
  local dues = told[block]
  local function look(at)
    local member = string.byte(dues, at) == place and find_fresh(numbered(dues, at, field))
    return member and fresh(member)
  end
  -- Numbers are mostly used in turn.
  local likely = #dues > 0 and 7 * (place - string.byte(dues)) + 1 or 0
  r = likely > 0 and look(likely)
  for at = 1, r and 0 or #dues, 7 do
    r = r or look(at)
  end
  return r or nil
end

local function find_key(key)
  local id = call('HGET', P .. 'keys', key)
  local r = id and load(id)
  -- A message that has just died has given up its key.
  return r and r.s ~= 3 and r or nil
end

-- A key as it is in `dead-keys`: after its length, so that none is the prefix of another.
local function dead_key(key)
  return struct.pack('>I2', #key) .. key
end

-- The youngest of the dead that had this key. If that is past retention, so are the others. An entry without a dead
-- message of this key is skipped: its record was removed by hand, or an earlier version, which has no `dead-keys`, has
-- revived it.
local function find_dead_key(key)
  local from = dead_key(key)
  local last = '[' .. from .. string.rep('\255', 23)
  for _ = 1, 16 do
    local member = call('ZREVRANGEBYLEX', P .. 'dead-keys', last, '[' .. from, 'LIMIT', 0, 1)[1]
    if not member then
      return nil
    end
    local r, is_gone = load(string.sub(member, -16))
    if is_gone then
      return nil
    end
    if r and r.s == 3 and r.k == key and not r.K then
      return r
    end
    last = '(' .. member
  end
end

local function find(target)
  if target.k then
    return find_key(target.k)
  end
  return load(target.i)
end

-- Removes the record of a message that is in no index any more, with its body and headers.
local function forget(r)
  local field = string.sub(r.i, 9)
  call('HDEL', P .. 'records', field)
  if not r.body then
    call('HDEL', P .. 'bodies', field)
  end
  if r.h then
    call('HDEL', P .. 'headers', field)
  end
end

local function save(r)
  if r.gone then
    forget(r)
    return
  end
  local field = string.sub(r.i, 9)
  if r.body then
    call('HSET', P .. 'bodies', field, r.body)
    r.body = nil
  end
  call('HSET', P .. 'records', field, cmsgpack.pack(r))
end

local function body_length(r)
  return r.body and #r.body or call('HSTRLEN', P .. 'bodies', string.sub(r.i, 9))
end

-- Headers are names and values, each after its length in two bytes. They are checked before a message is handed out.
local function check_headers(r)
  local field = string.sub(r.i, 9)
  local packed = r.h and call('HGET', P .. 'headers', field)
  local at, length = 1, packed and #packed or 0
  while at < length do
    at = at + 2 + struct.unpack('>I2', packed, at)
  end
  if at ~= length + 1 then
    foreign('the field ' .. hex(field) .. ' of ' .. P .. 'headers is in no form of ours')
  end
end

-- What a reader gets: record, body, headers.
local function shown(r)
  local field, body, member = string.sub(r.i, 9), r.body, r.fresh
  r.body, r.fresh = nil, nil
  local packed = cmsgpack.pack(r)
  r.body, r.fresh = body, member
  return { packed, body or call('HGET', P .. 'bodies', field) or '', r.h and call('HGET', P .. 'headers', field) or false }
end
