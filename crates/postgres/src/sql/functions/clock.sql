-- Time. This is the only place that reads a clock; tests replace `clock_us` alone.

-- Microseconds since the epoch, as they are now and not as they were when the transaction began.
CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint $$;

-- Milliseconds, rounded down: what has come by now.
CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT clock_us() / 1000 $$;

-- Milliseconds, rounded up: what a delay counts from, so that nothing is early.
CREATE OR REPLACE FUNCTION clock_ms_up() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT (clock_us() + 999) / 1000 $$;
