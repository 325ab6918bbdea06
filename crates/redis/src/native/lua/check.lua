-- Checks whether keys are ours: a key of another type is foreign.
--
-- Keys    those that are named
-- A.keys  {name, type} of each
-- Reply   `wrong`: the name of one that has another type than it should, with that type and the right one
-- Cost    O(1) a key
local out = {}
for _, key in ipairs(cmsgpack.unpack(ARGV[1]).keys) do
  local found = redis.call('TYPE', KEYS[1] .. key[1]).ok
  if found ~= 'none' and found ~= key[2] then
    out.wrong = { KEYS[1] .. key[1], found, key[2] }
  end
end
return cmsgpack.pack(out)
