-- The answers of puts under an idempotency key, and the other partitions that may have some.
--
--   idempotency        idempotency key → {answer, end, digest of the put}; the empty key → {partitions, until} of each earlier number of
--                      partitions of the queue, as long as a key that was remembered under it may be in force: its answer lies where that number has put it
--   idempotency-until  end → idempotency key
-- The answer that is known under an idempotency key; or {'mismatch', id}, if that was for a put of another digest. What an
-- earlier version has stored has no digest.
local function recall(idempotency_key, digest)
  local packed = call('HGET', P .. 'idempotency', idempotency_key)
  if packed then
    local known = read(packed, 'a field of ' .. P .. 'idempotency')
    if type(known[1]) ~= 'table' or type(known[2]) ~= 'number' then
      foreign('a field of ' .. P .. 'idempotency is no answer to a put')
    end
    if now < known[2] then
      if known[3] and digest and known[3] ~= digest then
        return { 'mismatch', known[1][2] }
      end
      return known[1]
    end
  end
end

-- When the last idempotency key that is remembered here ends, if that is in the future.
local function last_idempotency_key()
  local last = call('ZRANGE', P .. 'idempotency-until', -1, -1, 'WITHSCORES')[2]
  last = last and tonumber(last)
  return last and now < last and last or nil
end

-- The earlier numbers of partitions of the queue, as far as they matter.
local function past_partitions()
  local packed = call('HGET', P .. 'idempotency', '')
  local past = {}
  for _, entry in ipairs(packed and read(packed, 'a field of ' .. P .. 'idempotency') or {}) do
    if type(entry) ~= 'table' or type(entry[1]) ~= 'number' or type(entry[2]) ~= 'number' then
      foreign('a field of ' .. P .. 'idempotency names no partitions')
    end
    if now < entry[2] then
      past[#past + 1] = entry
    end
  end
  return past
end
