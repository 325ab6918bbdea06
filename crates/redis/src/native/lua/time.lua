-- Applies time to a partition: leases run out, messages expire, the dead pass their queue's retention. It comes
-- before everything else, so that every answer is as of now; at most TOUCH messages at a time, so that no script
-- blocks Redis for long.
--
-- Thousands may come at one instant, and the next call need not pay for all: after some replies of `more` the client
-- sends A.late, and then what is left waits for later calls, where a script allows that. Such a script uses no
-- message but those that it loads, and time is applied to each of these as it is loaded. Scripts that answer with
-- counts or lists go on until all is done.
local TOUCH = 32

-- Whether one more attempt is the last one.
local function is_last(r)
  local limit = r.M or setting('attempts')
  return limit > 0 and (r.a or 0) + 1 >= limit
end

-- A lease has run out at an instant: one more attempt is spent, and the message is dead, waits for the queue's
-- backoff, or is where it was before the lease.
local function lapse(r, at)
  local is_dead = is_last(r)
  unplace_leased(r)
  r.l, r.a = (r.l or 0) + 1, (r.a or 0) + 1
  if is_dead then
    die(r, 1, at, LAPSED)
  else
    -- The number of spent attempts from which on it waits, or 0.
    local from = setting('lapse_backoff') or 0
    if from > 0 and r.a >= from then
      r.d = math.min(at + backoff(setting('backoff'), r.a, lapse_jitter(r.i, r.a)), MAX_MS)
    end
    pend(r)
    note_ready(r, at)
  end
  save(r)
end

local function expire(r)
  unplace_pending(r)
  run_out(r)
  save(r)
end

-- Dead messages past the queue's retention, the oldest first: the maximum number that one call discards along the
-- way.
local RETAIN, RETAIN_MORE = 32, 256

-- Their number, by time and in all.
local function past_retention()
  local last, most = last_past_retention(), share('dead_max')
  local old = last and call('ZCOUNT', P .. 'dead', '-inf', last) or 0
  return old, most and math.max(old, call('ZCARD', P .. 'dead') - most) or old
end

-- Discards at most `most` of them; returns whether there are more.
local function retain(most)
  local old, all = past_retention()
  if all == 0 then
    return false
  end
  know_all()
  local some = math.min(all, most)
  discard(call('ZRANGE', P .. 'dead', 0, some - 1))
  count('discards', TTL, math.min(old, some))
  count('discards', MAX, math.max(some - old, 0))
  return all > some
end

-- False if there was too much to do at once. `first` is done before anything is written. All is read before that: it
-- may be foreign. `may_be_late`: the script's answer does not depend on messages that it does not load.
local function touch(first, may_be_late)
  local ended = call('ZRANGEBYSCORE', P .. 'leases', '-inf', now, 'LIMIT', 0, TOUCH)
  local expired = call('ZRANGEBYSCORE', P .. 'expiries', '-inf', now, 'LIMIT', 0, TOUCH - #ended)
  out.lapsed = #ended
  local most = may_be_late and RETAIN or RETAIN_MORE
  if #ended + #expired == 0 then
    if (setting('dead_ttl') or setting('dead_max')) and select(2, past_retention()) > 0 then
      know_all()
      if first then
        first()
      end
      out.retain = retain(most)
    end
    return true
  end
  local held, over = {}, {}
  for index, member in ipairs(ended) do
    local r = load(string.sub(member, 1, 16))
    -- The lease in this member is the message's current one.
    held[index] = r and r.s == 2 and (#member == 16 or string.sub(member, 17) == r.T) and r
  end
  for index, id in ipairs(expired) do
    local r = load(id)
    over[index] = r and not r.s and r.x and r
  end
  know_all()
  if first then
    first()
  end
  for index, member in ipairs(ended) do
    if held[index] then
      lapse(held[index], held[index].D)
    else
      call('ZREM', P .. 'leases', member)
    end
  end
  for index, id in ipairs(expired) do
    local r = over[index]
    if r then
      expire(r)
    else
      call('ZREM', P .. 'expiries', id)
    end
  end
  if setting('dead_ttl') or setting('dead_max') then
    out.retain = retain(most)
  end
  if #ended + #expired < TOUCH then
    return true
  end
  if A.late and may_be_late then
    catch_up = function(r)
      if r.s == 2 and r.D <= now then
        out.lapsed = out.lapsed + 1
        lapse(r, r.D)
      elseif not r.s and r.x and r.x <= now then
        expire(r)
      end
    end
    return true
  end
  hint()
  out.more = true
  return false
end

-- The number of leases in force. Those that have run out and are left for later calls are not counted.
local function in_force()
  return catch_up and call('ZCOUNT', P .. 'leases', string.format('(%.0f', now), '+inf') or call('ZCARD', P .. 'leases')
end

-- The instant that was asked for: kind 0 now, 1 at, 2 after a delay in ms, 3 level. Or nil and why there is none.
local function instant(kind, value)
  if kind == 0 then
    return now
  end
  if kind == 1 then
    return value
  end
  if kind == 3 then
    local levels = setting('levels') or {}
    local delay = levels[value]
    if not delay then
      return nil, { 'level', #levels }
    end
    value = delay
  end
  if now + value > MAX_MS then
    return nil, { 'range', value }
  end
  return now + value
end

local function pending()
  return call('ZCARD', P .. 'due') + call('ZCARD', P .. 'pending') + call('ZCARD', P .. 'pending-urgent') + call('ZCARD', P .. 'pending-later') + call('ZCARD', P .. 'ready')
end
