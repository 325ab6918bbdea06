-- The order in which due messages are handed out: (priority, due, id), over `due`, `pending` and `ready`.
--
-- Of the due messages on each side of the default priority at least IN_ORDER, if there are as many, are in order
-- before anything is handed out; one call moves at most STEP of a side, and replies that there is more to do.
local IN_ORDER = 1000
local STEP = 64

-- Whether there may be messages outside `due`: mostly there are none, and nothing else is read.
local is_mixed = true

-- Moves the due messages of u and o into order; false if it takes more calls.
local function ripen()
  is_mixed = call('EXISTS', P .. 'pending', P .. 'pending-urgent', P .. 'pending-later', P .. 'ready') > 0
  if not is_mixed then
    return true
  end
  local is_done = true
  local usual = '(' .. DEFAULT_PRIORITY
  for _, side in ipairs({ { 'pending-urgent', '-inf', usual }, { 'pending-later', usual, '+inf' } }) do
    local key = P .. side[1]
    local due = call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, STEP)
    if due[1] and call('ZCOUNT', P .. 'ready', side[2], side[3]) < IN_ORDER then
      know_all()
      local gone, ready, by_due = {}, {}, {}
      for index = 1, #due, 2 do
        local member, score = due[index], due[index + 1]
        if #member ~= 20 then
          foreign(key .. ' has a member that is no message')
        end
        local id = string.sub(member, 1, 16)
        gone[#gone + 1] = member
        ready[#ready + 1] = struct.unpack('>I4', member, 17)
        ready[#ready + 1] = struct.pack('>I6', tonumber(score)) .. id
        by_due[#by_due + 1] = score
        by_due[#by_due + 1] = id
      end
      call('ZREM', key, unpack(gone))
      call('ZADD', P .. 'ready', unpack(ready))
      call('ZADD', P .. 'ready-by-due', unpack(by_due))
      is_done = is_done and #gone < STEP
    end
  end
  return is_done
end

-- The first `max` messages that may be handed out, in order: the members of those in `due`, the ids of the others.
local function heads(max)
  local young = call('ZRANGEBYSCORE', P .. 'due', '-inf', now, 'LIMIT', 0, max)
  if not is_mixed then
    return young
  end
  local plain = call('ZRANGEBYSCORE', P .. 'pending', '-inf', now, 'WITHSCORES', 'LIMIT', 0, max)
  local ready = call('ZRANGE', P .. 'ready', 0, max - 1, 'WITHSCORES')
  if not plain[1] and not ready[1] then
    return young
  end
  local all, f, s, r = {}, 1, 1, 1
  while #all < max and (young[f] or plain[s] or ready[r]) do
    -- A message in r has another priority than those in f and s.
    if ready[r] and (tonumber(ready[r + 1]) < DEFAULT_PRIORITY or not (young[f] or plain[s])) then
      all[#all + 1] = string.sub(ready[r], 7)
      r = r + 2
    else
      local is_young = young[f] and true
      if young[f] and plain[s] then
        check_fresh(young[f])
        local due, other = (struct.unpack('>I6', young[f])), tonumber(plain[s + 1])
        is_young = due < other or (due == other and precedes(young[f], plain[s]))
      end
      if is_young then
        all[#all + 1] = young[f]
        f = f + 1
      else
        all[#all + 1] = plain[s]
        s = s + 2
      end
    end
  end
  return all
end

local function is_paused()
  local pause = setting('pause')
  return pause == -1 or now < pause
end

-- When there may be something to hand out, if no call comes until then; nil if never.
local function next_instant()
  local pause = setting('pause')
  if pause == -1 then
    return nil
  end
  if now < pause then
    return pause
  end
  local least = call('EXISTS', P .. 'ready') == 1 and now or nil
  for _, key in ipairs({ 'due', 'pending', 'pending-urgent', 'pending-later', 'leases' }) do
    local first = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')[2]
    if first and (not least or tonumber(first) < least) then
      least = tonumber(first)
    end
  end
  return least
end
