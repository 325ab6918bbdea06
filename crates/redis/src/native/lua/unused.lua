-- Checks whether no record has any of some fields: the numbers of a block, to see whether a partition still uses it.
--
-- Keys    records due due-index due-index-until
-- A.fields the last 8 bytes of ids, those of the block's numbers; A.block it, as text; A.shard the partition's number
-- Reply   `unused`: none of them has a record, or is due; what `due-index` has of them is forgotten then
-- Cost    O(fields), about 0.2 µs each, and 2 of those that `due-index` has, until one is found
local function is_used()
  for _, field in ipairs(A.fields) do
    if call('HEXISTS', P .. 'records', field) == 1 then
      return true
    end
  end
  local dues = call('HGET', P .. 'due-index', A.block)
  for at = 1, dues and #dues or 0, 7 do
    if find_fresh(numbered(dues, at, A.fields[string.byte(dues, at) + 1])) then
      return true
    end
  end
  return false
end

out.unused = not is_used()
if out.unused then
  know_zset('due-index-until')
  call('HDEL', P .. 'due-index', A.block)
  call('ZREM', P .. 'due-index-until', A.block)
end
return cmsgpack.pack(out)
