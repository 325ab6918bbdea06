"""Installs the schema as `dwell postgres migrate` does: the layout once, then the functions, in one transaction."""
import pathlib

SQL = pathlib.Path(__file__).resolve().parents[2] / "src" / "sql"
LAYOUTS = ["0001_tables.sql"]
# In this order: SQL functions are validated when they are created.
FUNCTIONS = ["clock", "id", "place", "refuse", "queue", "transition", "put", "take", "settle", "change", "dead", "message", "stats",
             "session", "purge", "maintain", "open", "caller", "rights"]
# The functions that callers may be granted; the store's own calls end in the number of their contract.
FOR_CALLERS = ["put", "try_put", "put_many", "cancel", "reschedule", "ack"]

# The clock of tests: the real one, or a manual one that stands still.
CLOCK_OF_TESTS = """
CREATE TABLE IF NOT EXISTS test_clock (us bigint);
CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT coalesce((SELECT us FROM test_clock), (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint)
$$;
"""


def install(conn, schema="dwell", clock_of_tests=True):
    with conn.transaction():
        conn.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        conn.execute(f'SET LOCAL search_path = "{schema}", pg_temp')
        if conn.execute("SELECT to_regclass('layout')").fetchone()[0] is None:
            for layout in LAYOUTS:
                conn.execute((SQL / layout).read_text())
        for name in FUNCTIONS:
            conn.execute((SQL / "functions" / f"{name}.sql").read_text())
            if name == "clock" and clock_of_tests:
                conn.execute(CLOCK_OF_TESTS)


def grant(conn, role, schema="dwell"):
    names = ", ".join(f"'{name}'" for name in FOR_CALLERS)
    conn.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"')
    for (function,) in conn.execute(
        f"SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = '{schema}'::regnamespace AND p.proname IN ({names})"
    ).fetchall():
        conn.execute(f'GRANT EXECUTE ON FUNCTION {function} TO "{role}"')
