-- Reads messages, in any state.
--
-- Keys    m S B H k f N; all where time has brought something about
-- A.items each: `i` id, `k` key, or `n` the last 8 bytes of an id, for which A.shard is the
--         partition's number
-- A.brief answer with ids alone
-- Reply   `bare`: the partition has nothing; `items` each: record, body, headers, or false
-- Cost    O(1) a message
if not touch() then
  return cmsgpack.pack(out)
end
out.items = {}
each(A.items, function(item)
  local r
  if item.n then
    r = load_numbered(item.n)
  else
    r = find(item)
  end
  return r and (A.brief and { r.i } or shown(r)) or false
end)
out.bare = is_bare()
hint()
return cmsgpack.pack(out)
