-- Lists dead messages, oldest first; or revives or discards some of them.
--
-- Keys    meta records bodies headers keys dead dead-by-due dead-keys pending pending-urgent pending-later expiries waiters calls; leases session-leases where time has brought something about
-- A.list  the number to list, from the first one after A.death and A.after on, if these are given: `refs`, {death, id} of each
-- A.ids   these: revived if `w` `v` name an instant, else discarded
-- Reply   `due`, the instant; `refs`; or `items` each: {'ok'}, {'missing'}, {'alive', id}, {'key', owner}; or `refused`, of the instant;
--         `dead` how many there were; `bare` if the partition has nothing any more
-- Cost    O(log n) a message, about 8 µs
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end
-- Messages past retention are not among them.
local last = last_past_retention()
local over = last and call('ZCOUNT', P .. 'dead', '-inf', last) or 0
out.dead = call('ZCARD', P .. 'dead') - over
if A.w then
  out.due, out.refused = instant(A.w, A.v)
end
if A.list then
  out.refs = {}
  -- By place and not by rank: a concurrent call on the same messages moves the ranks.
  local first = math.max(A.after and rank_after(P .. 'dead', A.death, A.after) or 0, over)
  local members = A.list > 0 and call('ZRANGE', P .. 'dead', first, first + A.list - 1, 'WITHSCORES') or {}
  for index = 1, #members, 2 do
    if #members[index] ~= 16 or string.byte(members[index], 7) < 128 then
      foreign(P .. 'dead has a member that is no message')
    end
    out.refs[#out.refs + 1] = { tonumber(members[index + 1]), members[index] }
  end
  hint()
  return cmsgpack.pack(out)
end

local function sweep(id)
  know_all()
  local r, is_gone = load(id)
  if not r then
    if not is_gone and call('ZSCORE', P .. 'dead', id) then
      foreign(P .. 'dead names a message that has no record')
    end
    return { 'missing' }
  end
  local owner = A.w and r.s == 3 and r.k and not r.K and find_key(r.k)
  if owner then
    return { 'key', owner.i }
  end
  if r.s ~= 3 then
    return { 'alive', r.i }
  end
  unplace_dead(r)
  if not A.w then
    count('discards', ASKED, 1)
    forget(r)
    return { 'ok' }
  end
  r.d = out.due
  r.a = nil
  if r.x and r.x <= math.max(r.d, now) then
    r.x = nil
  end
  r.v = (r.v or 0) + 1
  if r.k and not r.K then
    call('HSET', P .. 'keys', r.k, r.i)
  end
  pend(r)
  note_ready(r, now)
  save(r)
  return { 'ok' }
end

if not out.refused then
  out.items = {}
  each(A.ids, sweep)
end
out.bare = is_bare()
hint()
return answer()
