-- The order in which due messages go out: (priority, due, id), over what lies in `s` and in `r`.
--
-- At least so many of each side of the usual priority that are due lie in their order before anything goes out, if
-- there are as many; one call moves at most STEP of a side, and says that there is more to do.
local IN_ORDER = 1000
local STEP = 64

-- Messages of u and o that are due come into their order; false if it takes more calls.
local function ripen()
  local is_done = true
  local usual = '(' .. DEFAULT_PRIORITY
  for _, side in ipairs({ { 'u', '-inf', usual }, { 'o', usual, '+inf' } }) do
    local key = P .. side[1]
    local due = call('ZRANGEBYSCORE', key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, STEP)
    if due[1] and call('ZCOUNT', P .. 'r', side[2], side[3]) < IN_ORDER then
      local gone, ready, by_due = {}, {}, {}
      for index = 1, #due, 2 do
        local member, score = due[index], due[index + 1]
        local id = string.sub(member, 1, 16)
        gone[#gone + 1] = member
        ready[#ready + 1] = struct.unpack('>I4', member, 17)
        ready[#ready + 1] = struct.pack('>I6', tonumber(score)) .. id
        by_due[#by_due + 1] = score
        by_due[#by_due + 1] = id
      end
      call('ZREM', key, unpack(gone))
      call('ZADD', P .. 'r', unpack(ready))
      call('ZADD', P .. 'd', unpack(by_due))
      is_done = is_done and #gone < STEP
    end
  end
  return is_done
end

-- The ids of the first `max` that may go out, in their order; how many of them come before those that lie in `s`, and
-- how many lie in `s`: these are the first of it.
local function heads(max)
  local plain = call('ZRANGEBYSCORE', P .. 's', '-inf', now, 'LIMIT', 0, max)
  local ready = call('ZRANGE', P .. 'r', 0, max - 1, 'WITHSCORES')
  if not ready[1] then
    return plain, 0, #plain
  end
  local ids, s, r, urgent = {}, 1, 1, 0
  while #ids < max and (plain[s] or ready[r]) do
    -- What lies in r has another priority than what lies in s.
    local is_urgent = ready[r] and tonumber(ready[r + 1]) < DEFAULT_PRIORITY
    if plain[s] and not is_urgent then
      ids[#ids + 1] = plain[s]
      s = s + 1
    else
      ids[#ids + 1] = string.sub(ready[r], 7)
      r = r + 2
      urgent = urgent + (is_urgent and 1 or 0)
    end
  end
  return ids, urgent, s - 1
end

local function is_paused()
  local pause = setting('pause')
  return pause == -1 or now < pause
end

-- When there may be something to hand out, if nothing is called until then; nil if never.
local function next_instant()
  local pause = setting('pause')
  if pause == -1 then
    return nil
  end
  if now < pause then
    return pause
  end
  local least = call('EXISTS', P .. 'r') == 1 and now or nil
  for _, key in ipairs({ 's', 'u', 'o', 'l' }) do
    local first = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')[2]
    if first and (not least or tonumber(first) < least) then
      least = tonumber(first)
    end
  end
  return least
end
