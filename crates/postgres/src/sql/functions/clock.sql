-- Time. Only these functions read a clock; tests replace `clock_us` alone.

-- Microseconds since the epoch now, not at the start of the transaction.
CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint $$;

-- Milliseconds, rounded down, to compare with instants.
CREATE OR REPLACE FUNCTION clock_ms() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT clock_us() / 1000 $$;

-- Milliseconds, rounded up: the base of a delay, so that nothing is early.
CREATE OR REPLACE FUNCTION clock_ms_up() RETURNS bigint
LANGUAGE sql VOLATILE AS $$ SELECT (clock_us() + 999) / 1000 $$;
