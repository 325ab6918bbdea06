-- Which of some fields no record has: the numbers of a block, to see whether a partition uses it still.
--
-- Keys    S
-- A.fields the last 8 bytes of ids
-- Reply   `unused`: none of them has a record
-- Cost    O(fields), about 0.2 µs each
out.unused = true
for _, field in ipairs(A.fields) do
  if call('HEXISTS', P .. 'S', field) == 1 then
    out.unused = false
    break
  end
end
return cmsgpack.pack(out)
