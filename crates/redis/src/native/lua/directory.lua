-- The beginning of every script on the directory. All that the queues of a store share lies in one slot.
--
-- KEYS[1]  the directory's prefix, `{dwell}:`
-- KEYS[2]  its key `meta`: see `Scripts::command`
-- ARGV[1]  arguments, packed
-- Reply    a packed table
local P = KEYS[1]
local call = redis.call
local A = cmsgpack.unpack(ARGV[1])
local out = { now = now }

-- As on a partition: a script checks the keys before it writes.
local function know(expected, name)
  local found = call('TYPE', P .. name).ok
  if found ~= 'none' and found ~= expected then
    error('DWELLFOREIGN the key ' .. P .. name .. ' is a ' .. found .. ' and not a ' .. expected, 0)
  end
end

-- The first write of all scripts but those that a put needs: see `write_though_full` in `begin.lua`.
local function write_though_full()
  call('HDEL', P .. 'meta', '')
end

local layout = call('HGET', P .. 'meta', 'v')
if layout and layout ~= '1' then
  return redis.error_reply('DWELLVERSION layout ' .. string.gsub(layout, '%W', '?') .. ' is not known to this version of dwell')
end
