-- Cancels or reschedules messages that are not leased.
--
-- Keys    meta records bodies headers keys pending pending-urgent pending-later ready ready-by-due expiries waiters calls; leases session-leases dead dead-by-due where time has brought something about
-- A.items each: `i` id or `k` key; `w` `v` the new instant, or none: cancel
-- Reply   `known`: whether the queue has anything; `items` each: {'ok', id, due}, {'leased', id}, {'dead', id},
--         {'missing'} or a refusal of the instant: {'level', levels}, {'range', delay}, {'expires', expires, due};
--         `bare` if the partition has nothing any more
-- Cost    O(log n) a message
write_though_full()
if not touch(nil, true) then
  return cmsgpack.pack(out)
end

local function change(item)
  local due, refusal
  if item.w then
    due, refusal = instant(item.w, item.v)
    if not due then
      return refusal
    end
  end
  know_all()
  local r = find(item)
  if not r then
    return { 'missing' }
  end
  if r.s then
    return { r.s == 2 and 'leased' or 'dead', r.i }
  end
  if not due then
    remove_pending(r)
    return { 'ok', r.i }
  end
  if r.x and r.x <= due then
    return { 'expires', r.x, due }
  end
  unplace_pending(r)
  r.d = due
  pend(r)
  note_ready(r, now)
  save(r)
  return { 'ok', r.i, due }
end

out.items = {}
each(A.items, change)
out.bare = is_bare()
hint()
return answer()
