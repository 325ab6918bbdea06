-- The prelude of tests: `now` stands where the test has put it; the client sends it as the last argument.
local now = tonumber(ARGV[#ARGV])
