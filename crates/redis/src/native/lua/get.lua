-- Reads messages, in any state.
--
-- Keys    meta records bodies headers keys dead-keys due due-index; all where time has brought something about
-- A.items each: `i` id, `k` key, or `n` the last 8 bytes of an id, for which A.shard is the
--         partition's number
-- A.dead  by key, the youngest of the dead that had it, where no live message has
-- A.brief answer with ids alone
-- A.bytes how many bytes of bodies, but one message in any case
-- Reply   `bare`: the partition has nothing; `items` each: record, body, headers, or false; `upto`, if those behind it are to be
--         asked for again, since their bodies are too many bytes
-- Cost    O(1) a message, and about 1 ms for 256 KiB of bodies
if not touch(nil, true) then
  return cmsgpack.pack(out)
end
out.items = {}
local bytes, done = 0, 0
each(A.items, function(item)
  if out.upto then
    return false
  end
  done = done + 1
  local r
  if item.n then
    r = load_numbered(item.n)
  else
    r = find(item) or (A.dead and item.k and find_dead_key(item.k))
  end
  if r and not A.brief then
    local length = body_length(r)
    if bytes > 0 and bytes + length > A.bytes then
      out.upto = done - 1
      return false
    end
    bytes = bytes + length
  end
  return r and (A.brief and { r.i } or shown(r)) or false
end)
out.bare = is_bare()
hint()
return cmsgpack.pack(out)
