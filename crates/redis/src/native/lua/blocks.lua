-- The partitions that use blocks of numbers.
--
-- Keys    block:BLOCK of the directory
-- A.blocks which
-- Reply   `parts`: of each block, a list of `index/queue`
-- Cost    O(partitions that use them), at most 256 a block
out.parts = {}
for index, block in ipairs(A.blocks) do
  local name = 'block:' .. string.format('%.0f', block)
  know('set', name)
  out.parts[index] = call('SMEMBERS', P .. name)
end
return cmsgpack.pack(out)
