-- Removes partitions that no longer use a block of numbers.
--
-- Keys    blocks and block:BLOCK of the directory
-- A.block its number; A.parts the partitions, as `index/queue`
-- Reply   nothing
-- Cost    O(partitions)
know('zset', 'blocks')
local block = string.format('%.0f', A.block)
for _, part in ipairs(A.parts) do
  call('SREM', P .. 'block:' .. block, part)
end
if call('EXISTS', P .. 'block:' .. block) == 0 then
  call('ZREM', P .. 'blocks', block)
end
return cmsgpack.pack(out)
