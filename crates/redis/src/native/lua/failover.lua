-- A server that took over, or that came back with what it had saved last, may have lost the latest steps of the directory:
-- the blocks and registrations that it would give out next may be in use. So where another server answers than the one
-- before, both counters leap over more than can have been given out since.
local LEAP = 65536

local function leap_after_failover()
  -- Who may not ask gets no leap.
  local info = redis.pcall('INFO', 'server')
  local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
  local before = call('HGET', P .. 'm', 'i')
  if not run or run == before then
    return
  end
  if before then
    call('HINCRBY', P .. 'm', 'b', LEAP)
    call('HINCRBY', P .. 'm', 'r', LEAP)
  end
  call('HSET', P .. 'm', 'i', run)
end
