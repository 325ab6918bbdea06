-- The answers of puts under a token, and the other partitions that may have some.
--
--   t  token → {answer, end, digest of the put}; the empty token → {spread, until} of each spread that the queue had before, as long as a token
--      that was remembered under it may be good: its answer lies where that spread has put it
--   T  end → token
-- The answer that is known under a token; or {'mismatch', id}, if that was for a put of another digest. What an
-- earlier version has stored has no digest.
local function recall(token, digest)
  local packed = call('HGET', P .. 't', token)
  if packed then
    local known = read(packed, 'a field of ' .. P .. 't')
    if type(known[1]) ~= 'table' or type(known[2]) ~= 'number' then
      foreign('a field of ' .. P .. 't is no answer to a put')
    end
    if now < known[2] then
      if known[3] and digest and known[3] ~= digest then
        return { 'mismatch', known[1][2] }
      end
      return known[1]
    end
  end
end

-- When the last token that is remembered here ends, if that is in the future.
local function last_token()
  local last = call('ZRANGE', P .. 'T', -1, -1, 'WITHSCORES')[2]
  last = last and tonumber(last)
  return last and now < last and last or nil
end

-- The earlier spreads of the queue, as far as they matter.
local function past_spreads()
  local packed = call('HGET', P .. 't', '')
  local past = {}
  for _, entry in ipairs(packed and read(packed, 'a field of ' .. P .. 't') or {}) do
    if type(entry) ~= 'table' or type(entry[1]) ~= 'number' or type(entry[2]) ~= 'number' then
      foreign('a field of ' .. P .. 't names no spread')
    end
    if now < entry[2] then
      past[#past + 1] = entry
    end
  end
  return past
end
