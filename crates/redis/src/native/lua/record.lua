-- A message's record: where it stands and what it was put with, in the hash `S` under the last 8 bytes of its id. Its
-- first byte tells its form:
--
--   1     put with an instant and a short body alone, and never handed out since:
--         created (6 bytes), epoch (4), first 8 bytes of the id, body. It is due at the instant that its id begins with.
--   2     the same, handed out for the first time and held:
--         lease's token (16), deadline (6), length (6), process that it is bound to or zeros (8); then form 1, whole
--   else  whatever has happened to it: packed fields, and its body in the hash `B`
--
-- Most messages never need more than 1 and 2, which no script takes apart to hand them out and to ack them. The fields,
-- those that have their default are absent:
--
--   i id, 16 bytes        d due            c created          p priority, if not 1024
--   s state: nil pending, 2 leased, 3 dead                    E epoch in which it became pending or dead
--   a attempts spent      x expires        k key              K it gave its key up, and has none
--   L its own lease       M its own limit of attempts, 0 none h it has headers
--   t takes  l lapses  r releases  b buries  v revives        e last error
--   y last made ready by other than its instant
--   leased: T token, D deadline, w length, B process that it is bound to
--   dead: R reason (1 attempts spent, 2 buried, 3 expired), A when
--
-- Pending is scheduled before `d` and ready from then on. A record that was read from form 1 or 2 has its body with it,
-- as `body`, which is never packed.
local FRESH, HELD = 1, 2
local NOBODY = string.rep('\0', 8)
local MAX_MS = 253402300799999
local DEFAULT_PRIORITY = 1024

local function decoded(packed, field)
  local form = string.byte(packed)
  if form ~= FRESH and form ~= HELD then
    return cmsgpack.unpack(packed)
  end
  local at = form == HELD and 39 or 2
  local created, made_in, due = struct.unpack('>I6I4I6', packed, at)
  local r = {
    i = string.sub(packed, at + 10, at + 17) .. field,
    d = due,
    c = created,
    E = made_in > 0 and made_in or nil,
    body = string.sub(packed, at + 18),
  }
  if form == HELD then
    r.s, r.E, r.t = 2, nil, 1
    r.T = string.sub(packed, 2, 17)
    r.D, r.w = struct.unpack('>I6I6', packed, 18)
    local process = string.sub(packed, 30, 37)
    r.B = process ~= NOBODY and process or nil
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

local function load(id)
  local field = string.sub(id, 9)
  local packed = call('HGET', P .. 'S', field)
  local r = packed and unpacked(packed, field)
  if r and r.i == id then
    return r
  end
end

local function find_key(key)
  local id = call('HGET', P .. 'k', key)
  return id and load(id)
end

local function find(target)
  if target.k then
    return find_key(target.k)
  end
  return load(target.i)
end

local function save(r)
  local field = string.sub(r.i, 9)
  if r.body then
    call('HSET', P .. 'B', field, r.body)
    r.body = nil
  end
  call('HSET', P .. 'S', field, cmsgpack.pack(r))
end

local function forget(r)
  local field = string.sub(r.i, 9)
  call('HDEL', P .. 'S', field)
  if not r.body then
    call('HDEL', P .. 'B', field)
  end
  if r.h then
    call('HDEL', P .. 'H', field)
  end
end

local function body_length(r)
  return r.body and #r.body or call('HSTRLEN', P .. 'B', string.sub(r.i, 9))
end

-- What a reader gets: record, body, headers.
local function shown(r)
  local field, body = string.sub(r.i, 9), r.body
  r.body = nil
  local packed = cmsgpack.pack(r)
  r.body = body
  return { packed, body or call('HGET', P .. 'B', field) or '', r.h and call('HGET', P .. 'H', field) or false }
end
