-- Hands out one message that is scheduled, ready or dead; its instant becomes now if it was later.
--
-- Keys    as `take`, and dead dead-by-due dead-keys; takes that wait get a hint if this lease ends before they would look again
-- A.id    the message; A.lease, A.token (16 bytes), A.session, A.holder as with `take`; A.full no lease may be granted; A.cap how
--         many leases there may be here
-- Reply   `item`: record, body, headers; or `refused`: {word, id}
-- Cost    O(log n)
write_though_full()
if not touch(nil, true) then
  return cmsgpack.pack(out)
end

local function take(r)
  if not r then
    return { 'missing' }
  end
  if r.s == 2 and r.T == A.token then
    -- The call is repeated, and its answer was too long to be kept.
    out.item = shown(r)
    return
  end
  if r.s == 2 then
    return { 'leased', r.i }
  end
  if r.s == 3 and r.k and not r.K then
    local owner = find_key(r.k)
    if owner then
      return { 'key', owner.i }
    end
    -- The owner may just have died, and `dead_max` has discarded this message for it.
    r = load(r.i)
    if not r then
      return { 'missing' }
    end
  end
  local own_cap = share('max_leased')
  if own_cap and in_force() >= own_cap then
    return { 'own', setting('max_leased') }
  end
  if A.full then
    return { 'cap' }
  end
  if in_force() >= A.cap then
    return { 'queue' }
  end
  check_headers(r)
  if r.s == 3 then
    unplace_dead(r)
    r.d = math.min(r.d, now)
    r.a = nil
    if r.x and r.x <= now then
      r.x = nil
    end
    r.v = (r.v or 0) + 1
    if r.k and not r.K then
      call('HSET', P .. 'keys', r.k, r.i)
    end
  else
    unplace_pending(r)
    r.d = math.min(r.d, now)
  end
  r.t = (r.t or 0) + 1
  place_leased(r, A.token, A.lease or r.L or setting('lease'), A.session, A.holder)
  save(r)
  out.item = shown(r)
end

know_all()
out.refused = take(load(A.id))
hint()
return answer()
