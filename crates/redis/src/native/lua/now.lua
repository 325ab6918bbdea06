-- The prelude: `now`, the server's wall clock in milliseconds since 1970. Tests put `now_test.lua` in its place.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
