-- A message's record: where it stands and what it was put with, packed, in the hash `S` under the last 8 bytes of its
-- id. Fields that have their default are absent.
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
-- Pending is scheduled before `d` and ready from then on.
local MAX_MS = 253402300799999
local DEFAULT_PRIORITY = 1024

local function unpacked(packed)
  local r = cmsgpack.unpack(packed)
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
  local packed = call('HGET', P .. 'S', string.sub(id, 9))
  local r = packed and unpacked(packed)
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
  call('HSET', P .. 'S', string.sub(r.i, 9), cmsgpack.pack(r))
end

local function forget(r)
  local field = string.sub(r.i, 9)
  call('HDEL', P .. 'S', field)
  call('HDEL', P .. 'B', field)
  if r.h then
    call('HDEL', P .. 'H', field)
  end
end

-- What a reader gets: record, body, headers.
local function shown(r)
  local field = string.sub(r.i, 9)
  return { cmsgpack.pack(r), call('HGET', P .. 'B', field) or '', r.h and call('HGET', P .. 'H', field) or false }
end
