"""Runs the SQL tests: `run.py BIN...`, each the folder of a server's `postgres` and `initdb`; `--dsn DSN` for one that runs.

`--only WORD` runs the tests whose names have the word.
"""
import argparse
import time
import traceback

import psycopg

import installed
import servers
import store
import tests_calls
import tests_caller
import tests_random
import tests_together

MODULES = [tests_calls, tests_caller, tests_together, tests_random]


def run(dsn, only):
    admin = psycopg.connect(dsn, autocommit=True)
    version = admin.execute("SHOW server_version").fetchone()[0].split()[0]
    admin.execute("DROP SCHEMA IF EXISTS dwell CASCADE")
    installed.install(admin)
    failed, ran = [], 0
    for module in MODULES:
        for name in [name for name in dir(module) if name.startswith("test_") and only in name]:
            started = time.monotonic()
            # The schema is installed once, since it has many tables; each test uses its own queues.
            for table in ("test_clock", "key", "idempotency", "tally", "queue", "purge", "pend", "body", "standing", "session"):
                admin.execute(f"DELETE FROM dwell.{table}")
            admin.execute("DELETE FROM dwell.setting WHERE qid <> 0; UPDATE dwell.slot SET quiet_until = 0; "
                          "SELECT setval('dwell.purges', 1, false)")
            ran += 1
            try:
                s = store.Store(dsn)
                getattr(module, name)(s)
                s.conn.execute("DELETE FROM dwell.test_clock")
                s.check()
                s.conn.close()
                print(f"ok   {version:>6} {name} {time.monotonic() - started:.2f} s", flush=True)
            except Exception:
                failed.append(name)
                print(f"FAIL {version:>6} {name}", flush=True)
                traceback.print_exc()
    print(f"PostgreSQL {version}: {ran - len(failed)} of {ran} passed" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bins", nargs="*")
    parser.add_argument("--dsn", action="append", default=[])
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    failed = [failure for dsn in given.dsn for failure in run(dsn, given.only)]
    for bin_dir in given.bins:
        server = servers.Server(bin_dir)
        try:
            failed += run(server.dsn(), given.only)
        finally:
            server.stop()
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
