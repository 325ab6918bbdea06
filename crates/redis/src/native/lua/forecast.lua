-- Counts the scheduled messages of a partition that are due by some instants.
--
-- Keys    meta due pending pending-urgent pending-later ready leases dead expiries, and those that time acts on
-- A.edges instants, in any order
-- Reply   `bare`, `scheduled`, `due` a count for each of A.edges
-- Cost    O(log n) an instant and set that has a scheduled message, at most four: about 1 µs each
if not touch() then
  return cmsgpack.pack(out)
end
out.bare = is_bare()
out.scheduled, out.due = 0, {}
for index = 1, #A.edges do
  out.due[index] = 0
end
for _, name in ipairs({ 'due', 'pending', 'pending-urgent', 'pending-later' }) do
  local key = P .. name
  -- A message whose instant has come is ready, though it is still in this key.
  local ready = call('ZCOUNT', key, '-inf', now)
  local scheduled = call('ZCARD', key) - ready
  if scheduled > 0 then
    out.scheduled = out.scheduled + scheduled
    for index, edge in ipairs(A.edges) do
      if edge > now then
        out.due[index] = out.due[index] + call('ZCOUNT', key, '-inf', edge) - ready
      end
    end
  end
end
hint()
return cmsgpack.pack(out)
