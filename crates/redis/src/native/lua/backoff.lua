-- The delay of a retry that names none, as `Backoff::delay_ms` of `dwell-model` computes it.
--
-- b.base, b.cap in ms, b.factor and b.jitter in percent; random is 32 bits. It grows in whole nanoseconds, each step rounded
-- down. Numbers are exact up to 2^53, and a cap is below 2^48 ms: so milliseconds and the nanoseconds beside them are
-- two numbers, and what is multiplied is split.
local NANOS = 1000000

local function backoff(b, attempt, random)
  local delay, beside = math.min(b.base, b.cap), 0
  for _ = 2, attempt do
    local nanos = (delay % 100) * b.factor % 100 * (NANOS / 100) + math.floor(beside * b.factor / 100)
    local grown = math.floor(delay / 100) * b.factor + math.floor((delay % 100) * b.factor / 100) + math.floor(nanos / NANOS)
    nanos = nanos % NANOS
    if grown >= b.cap then
      delay = b.cap
      break
    end
    if grown == delay and nanos == beside then
      break
    end
    delay, beside = grown, nanos
  end
  local most_off = math.floor(delay / 100) * b.jitter + math.floor((delay % 100) * b.jitter / 100)
  local high, middle, low = math.floor(most_off / 4294967296), math.floor(most_off / 65536) % 65536, most_off % 65536
  return delay - high * random - math.floor((middle * random + math.floor(low * random / 65536)) / 65536)
end

-- The jitter after a lease of message `id` ran out as this attempt, in place of a random number: Bob Jenkins's
-- one-at-a-time hash over the id and the attempt, as in `Backoff::lapse_delay_ms`. So every script that notices the
-- lapse, however late, computes the same instant.
local function lapse_jitter(id, attempt)
  local hash = 0
  for _, byte in ipairs({ string.byte(id .. struct.pack('>I4', math.min(attempt, 4294967295)), 1, 20) }) do
    hash = bit.tobit(hash + byte)
    hash = bit.tobit(hash + bit.lshift(hash, 10))
    hash = bit.bxor(hash, bit.rshift(hash, 6))
  end
  hash = bit.tobit(hash + bit.lshift(hash, 3))
  hash = bit.bxor(hash, bit.rshift(hash, 11))
  return bit.tobit(hash + bit.lshift(hash, 15)) % 4294967296
end
