-- Returns blocks of numbers that were not checked for long, and marks them: the caller checks them, and no other process soon.
--
-- Keys    blocks and block:BLOCK of the directory
-- A.older the least ms since the last check; A.max how many blocks
-- Reply   `blocks`: of each, its number and the partitions that use it, as `index/queue`
-- Cost    O(log n) a block, and its partitions, at most 256
out.blocks = {}
for index, block in ipairs(call('ZRANGEBYSCORE', P .. 'blocks', '-inf', now - A.older, 'LIMIT', 0, A.max)) do
  know('set', 'block:' .. block)
  out.blocks[index] = { tonumber(block) or 0, call('SMEMBERS', P .. 'block:' .. block) }
end
write_though_full()
for _, entry in ipairs(out.blocks) do
  call('ZADD', P .. 'blocks', now, string.format('%.0f', entry[1]))
end
return cmsgpack.pack(out)
