-- Ends lapsed leases, at most 25, then leases ready payloads.
-- KEYS  as in claim_common.lua
-- ARGV  1 lease in ms  2 attempts allowed, 0 for no limit  3 most bytes of payloads, not counting the first
--       4... a token for each payload wanted
-- reply {number of leases ended, 1 if the limit in bytes was reached before all tokens were used, token, attempt,
--        deadline in ms as text, payload, token, ...}
-- cost  O(log N) a payload, and a digest of it
local reply = {}
if repeated then
  -- The payloads that it leased then and that are still leased.
  reply = { repeated[1], repeated[2] }
  for at = 3, #repeated, 3 do
    local payload = redis.call('HGET', KEYS[4], repeated[at])
    if payload then
      for part = at, at + 2 do reply[#reply + 1] = repeated[part] end
      reply[#reply + 1] = payload
    end
  end
  return reply
end
local wrong = wrong_types(KEYS[1], 'list', KEYS[2], 'list', KEYS[3], 'zset', KEYS[4], 'hash', KEYS[5], 'list',
  KEYS[10], 'string')
if wrong then return wrong end
local now, bytes, wanted = now_ms(), tonumber(ARGV[3]), #ARGV - 3
local deadline = now + tonumber(ARGV[1])
wrong = wrong_instant(deadline)
if wrong then return wrong end
deadline = ms_text(deadline)
local tokens, payloads = lapsed(now, 25, bytes)
-- The inbox first, then the destination. Lapsed payloads go back to the front of the destination, and are checked too.
local received, has_all, read = read_list(KEYS[2], 0, wanted, bytes)
local ready, is_end = {}, false
if has_all and #received < wanted and (read < bytes or #received == 0) then
  ready, is_end = read_list(KEYS[1], 0, wanted - #received, math.max(bytes - read, 1))
end
wrong = wrong_lapsed(payloads) or wrong_counts(received) or wrong_counts(ready) or select(2, inbox_since())
if wrong then return wrong end
write_though_full()
local back = reap(tokens, payloads, tonumber(ARGV[2]))
if #received > 0 then redis.call('DEL', KEYS[10]) end
-- All of these were checked: payloads that came back are in front of the destination's others.
local enough = math.min(#received + (has_all and back or 0) + #ready, wanted)
local cut = enough < wanted and not is_end and 1 or 0
reply = { #tokens, cut }
local kept = { #tokens, cut }
for at = 4, 3 + enough do
  local from = at - 3 <= #received and KEYS[2] or KEYS[1]
  local payload = redis.call('LPOP', from)
  if not payload then break end
  redis.call('HSET', KEYS[4], ARGV[at], payload)
  redis.call('ZADD', KEYS[3], deadline, ARGV[at])
  local attempt = tonumber(redis.call('GET', count_key(payload)) or 0) + 1
  for _, part in ipairs({ ARGV[at], attempt, deadline }) do
    kept[#kept + 1] = part
    reply[#reply + 1] = part
  end
  reply[#reply + 1] = payload
end
if #kept > 2 or #tokens > 0 then keep(kept) else unchanged(kept) end
return reply
