-- Hands out due messages, or says what could be.
--
-- Keys    m S B H s u o r d l w a; k x y g h where time has brought something about
-- A.max   how many, by the room for leases; A.want how many are wanted; A.bytes how many bytes of bodies, but one in any case unless
--         A.some were handed out before; A.lease length, if asked for;
--         A.token the first 14 bytes of the leases' tokens; A.bound the process, if they are bound to it
-- A.ended leases that ran out in the calls before, which said `more`
-- A.peek  hand nothing out, only say what comes first
-- A.wait  how many takes of the client wait here, A.process who it is: noted if there is nothing
-- Reply   `items`: record, body, headers of each; or, to a peek, {id, priority, due, length of the body};
--         `cut` if the bytes were the limit; `next` when there may be more
-- Cost    O(log n) a message
write_though_full()
if not touch() then
  return cmsgpack.pack(out)
end
out.items = {}
if not is_paused() and A.max > 0 then
  if not ripen() then
    out.more = true
    return cmsgpack.pack(out)
  end
  local bytes = 0
  -- Leases that ran out here make room for others.
  local room = A.max + out.lapsed + (A.ended or 0)
  for index, head in ipairs(heads(math.min(A.want or A.max, room))) do
    local id = head[1]
    local field = string.sub(id, 9)
    if A.bytes or A.peek then
      local length = call('HSTRLEN', P .. 'B', field)
      bytes = bytes + length
      if A.bytes and bytes > A.bytes and (index > 1 or A.some) then
        out.cut = true
        break
      end
      head[4] = length
    end
    if A.peek then
      out.items[index] = head
    else
      local r = load(id)
      unplace_pending(r)
      r.t = (r.t or 0) + 1
      place_leased(r, A.token .. struct.pack('>I2', index), A.lease or r.L or setting('lease'), A.bound)
      save(r)
      out.items[index] = shown(r)
    end
  end
end
if #out.items == 0 or A.peek then
  out.next = next_instant()
  if A.wait then
    call('HSET', P .. 'w', 'at', out.next or MAX_MS, A.process, cmsgpack.pack({ A.wait, now + 60000 }))
    call('PEXPIRE', P .. 'w', 120000)
  end
end
if A.peek then
  return cmsgpack.pack(out)
end
return answer()
