-- Removes partitions that no longer use a block of numbers.
--
-- Keys    B and b:BLOCK of the directory
-- A.block its number; A.parts the partitions, as `index/queue`
-- Reply   nothing
-- Cost    O(partitions)
know('zset', 'B')
local block = string.format('%.0f', A.block)
for _, part in ipairs(A.parts) do
  call('SREM', P .. 'b:' .. block, part)
end
if call('EXISTS', P .. 'b:' .. block) == 0 then
  call('ZREM', P .. 'B', block)
end
return cmsgpack.pack(out)
