-- Whether the keys of a partition are ours: a key of another type is somebody else's.
--
-- Keys    all of the partition
-- Reply   `wrong`: the name of one that has another type than it should, with that type
-- Cost    O(1)
local types = {
  m = 'hash', S = 'hash', B = 'hash', H = 'hash', k = 'hash', t = 'hash', a = 'hash', w = 'hash', Z = 'hash',
  f = 'zset', N = 'hash', n = 'zset', s = 'zset', u = 'zset', o = 'zset', r = 'zset', d = 'zset', l = 'zset', x = 'zset', y = 'zset', g = 'zset',
  h = 'zset', T = 'zset',
}
local out = {}
for name, expected in pairs(types) do
  local found = redis.call('TYPE', KEYS[1] .. name).ok
  if found ~= 'none' and found ~= expected then
    out.wrong = { KEYS[1] .. name, found, expected }
  end
end
return cmsgpack.pack(out)
