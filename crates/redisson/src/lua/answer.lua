-- Before every script that changes something: a call whose reply was lost gets the same reply again and does nothing.
-- KEYS  last: the last reply to this call's lane, kept for a minute. A lane has one call at a time
-- ARGV  last: the number of this call, 8 bytes, big-endian; later calls of a lane have higher numbers. A ninth byte
--       says that an earlier call, or another copy of this one, may still be in flight
local ANSWER, CALL = table.remove(KEYS), table.remove(ARGV)
local is_doubtful = #CALL > 8
CALL = string.sub(CALL, 1, 8)

-- The stored reply to this call; nil if it is new.
local repeated
local not_a_text = wrong_type(ANSWER, 'string')
if not_a_text then return not_a_text end
local last_answer = redis.call('GET', ANSWER)
if last_answer then
  if #last_answer < 9 then return not_ours(ANSWER, 'answer') end
  local high, low = struct.unpack('>I4I4', last_answer)
  local own_high, own_low = struct.unpack('>I4I4', CALL)
  -- It was delayed on its way. Its caller has given up or has a reply, so executing it now would execute it twice.
  if own_high < high or (own_high == high and own_low < low) then
    return redis.error_reply('DWELLLATE the call comes after one that was made later')
  end
  if own_high == high and own_low == low then repeated = cmsgpack.unpack(string.sub(last_answer, 9)) end
end

-- Stores the reply for a repeat of this call.
local function keep(reply)
  redis.call('SET', ANSWER, CALL .. cmsgpack.pack(reply), 'PX', 60000)
  return reply
end

-- The first write of scripts that free memory or use no more than they free. A Redis that is out of memory refuses
-- a write that may need more, unless the script has already written.
local function write_though_full()
  redis.call('PEXPIRE', ANSWER, 60000)
end

-- Replies to a call that has changed nothing. The reply need not be stored, since such a call may run twice; but if
-- another call may still be in flight, the number is stored, so that the late one is refused.
local function unchanged(reply)
  if not is_doubtful then return reply end
  write_though_full()
  return keep(reply)
end
