-- Before every script that changes something: a call that was answered, and whose answer was lost, is answered again
-- and does nothing.
-- KEYS  last: what the lane of this call was answered last; it goes a minute later. A lane has one call at a time
-- ARGV  last: the number of this call, 8 bytes, the highest first; a later call of a lane has a higher one. A ninth byte
--       says that an earlier one, or another copy of this one, may be under way yet
local ANSWER, CALL = table.remove(KEYS), table.remove(ARGV)
local is_doubtful = #CALL > 8
CALL = string.sub(CALL, 1, 8)

-- What this very call was answered before; nil if it was not.
local repeated
local not_a_text = wrong_type(ANSWER, 'string')
if not_a_text then return not_a_text end
local last_answer = redis.call('GET', ANSWER)
if last_answer then
  if #last_answer < 9 then return not_ours(ANSWER, 'answer') end
  local high, low = struct.unpack('>I4I4', last_answer)
  local own_high, own_low = struct.unpack('>I4I4', CALL)
  -- It was held up on its way. Its caller has given it up, or was answered: done now, it would be done twice.
  if own_high < high or (own_high == high and own_low < low) then
    return redis.error_reply('DWELLLATE the call comes after one that was made later')
  end
  if own_high == high and own_low == low then repeated = cmsgpack.unpack(string.sub(last_answer, 9)) end
end

-- Keeps what a repeated call is answered.
local function keep(reply)
  redis.call('SET', ANSWER, CALL .. cmsgpack.pack(reply), 'PX', 60000)
  return reply
end

-- The first write of scripts that free memory or keep as much as they take. A Redis out of memory refuses a write that
-- may take more, unless the script has written already.
local function write_though_full()
  redis.call('PEXPIRE', ANSWER, 60000)
end

-- Answers what has changed nothing. That need not be kept, for it may happen twice; but where something may be under way that
-- would come late, the number is kept that refuses it.
local function unchanged(reply)
  if not is_doubtful then return reply end
  write_though_full()
  return keep(reply)
end
