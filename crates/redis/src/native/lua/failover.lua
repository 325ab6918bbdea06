-- A server that took over, or that restarted from its last save, may have lost the latest steps of the directory: the
-- blocks and registrations that it would give out next may be in use. So where another server answers than the one
-- before, both counters leap over more than can have been given out since.
local LEAP = 65536

-- The server that runs this. A user who may not ask for it gets none, and no leap.
local function running()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)')
end

-- A client has seen blocks below `block` or the registration `reg`, and the counters here are lower: they were lost.
-- Other clients may have been given more than this one has seen.
local function leap_over(block, reg)
  for name, seen in pairs({ b = block, r = reg }) do
    if seen > (tonumber(call('HGET', P .. 'meta', name) or 0) or 0) then
      call('HSET', P .. 'meta', name, string.format('%.0f', seen + LEAP))
    end
  end
end

local function leap_after_failover()
  local run = running()
  local before = call('HGET', P .. 'meta', 'i')
  if not run or run == before then
    return
  end
  if before then
    call('HINCRBY', P .. 'meta', 'b', LEAP)
    call('HINCRBY', P .. 'meta', 'r', LEAP)
  end
  call('HSET', P .. 'meta', 'i', run)
end
