-- Removes all pending messages, all dead ones, or both with the settings; at once, at any size. What is removed is set
-- aside whole, and counts as gone from here on, since its epoch is over; `sweep` frees it in slices.
--
-- Keys    meta, and pending pending-urgent pending-later ready ready-by-due expiries or dead, renamed to purged- and a number; purged names those; due due-index due-index-until dead-by-due dead-keys, unlinked; waiters calls
-- A.pending, A.dead what is removed; A.own whether the settings go too, but for `partitions`: while another partition has
--         leased messages, it says where they are
-- Reply   `done` how many messages; `trash` whether there is something to clear away; `bare`; `kept`: `partitions` is
--         there still
-- Cost    O(log n)
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end
out.done = 0
know_all()
for name, value in pairs({ e = M[4] or '0', f = M[5] or '0', n = M[7] or '0', z = call('HGET', P .. 'meta', 'z') or '0' }) do
  if not string.match(value, '^%d+$') then
    foreign('the field ' .. name .. ' of ' .. P .. 'meta is no number')
  end
end

local function set_aside(name, counts)
  local count = call('ZCARD', P .. name)
  if count == 0 then
    return
  end
  if counts then
    out.done = out.done + count
  end
  local serial, trash = tonumber(call('HGET', P .. 'meta', 'z') or 0)
  repeat
    serial = serial + 1
    trash = 'purged-' .. string.format('%.0f', serial)
  until call('EXISTS', P .. trash) == 0
  call('HSET', P .. 'meta', 'z', string.format('%.0f', serial))
  call('RENAME', P .. name, P .. trash)
  -- The key that each was made from says how to read its members.
  call('HSET', P .. 'purged', trash, name)
  out.trash = true
end

if A.pending then
  -- Messages in `due` are in no other key.
  out.done = call('ZCARD', P .. 'due')
  call('UNLINK', P .. 'due', P .. 'due-index', P .. 'due-index-until')
  local before = out.done
  for _, name in ipairs({ 'pending', 'pending-urgent', 'pending-later', 'ready' }) do
    set_aside(name, true)
  end
  if out.done > before then
    call('UNLINK', P .. 'ready-by-due', P .. 'expiries')
    call('HSET', P .. 'meta', 'v', 1)
    epoch = call('HINCRBY', P .. 'meta', 'e', 1)
  end
end
if A.dead then
  local before = out.done
  -- Messages past retention count as gone already.
  local last = last_past_retention()
  local over = last and call('ZCOUNT', P .. 'dead', '-inf', last) or 0
  set_aside('dead', true)
  local dropped = out.done - before
  if dropped > 0 then
    out.done = out.done - over
    count('discards', TTL, over)
    count('discards', ASKED, dropped - over)
    call('UNLINK', P .. 'dead-by-due', P .. 'dead-keys')
    call('HSET', P .. 'meta', 'v', 1)
    call('HINCRBY', P .. 'meta', 'f', 1)
  end
end
if A.own and M[3] then
  own = { partitions = own.partitions }
  if own.partitions then
    call('HSET', P .. 'meta', 'o', cmsgpack.pack(own))
  else
    call('HDEL', P .. 'meta', 'o')
  end
  call('HINCRBY', P .. 'meta', 'n', 1)
  out.kept = own.partitions and true
end
out.bare = is_bare()
hint()
return answer()
