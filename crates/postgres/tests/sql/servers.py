"""PostgreSQL servers for the tests: on a socket in a temporary folder, removed with the test."""
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time


class Server:
    """One server, started from the folder that has its `postgres` and `initdb`."""

    def __init__(self, bin_dir, port=5432, **settings):
        self.bin = pathlib.Path(bin_dir)
        self.port = port
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dwell-pg-"))
        self.log = open(self.dir / "log", "wb")
        # PostgreSQL refuses to run as root.
        self.user = {}
        if os.getuid() == 0:
            entry = pwd.getpwnam("postgres")
            shutil.chown(self.dir, entry.pw_uid, entry.pw_gid)
            self.user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        data = self.dir / "data"
        subprocess.run(
            [self.bin / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"],
            check=True, stdout=self.log, stderr=self.log, cwd=self.dir, **self.user)
        chosen = {"listen_addresses": "", "unix_socket_directories": self.dir, "port": port, "max_connections": 60,
                  "max_prepared_transactions": 10, "shared_buffers": "64MB", "fsync": "off", **settings}
        arguments = [argument for name, value in chosen.items() for argument in ("-c", f"{name}={value}")]
        self.process = subprocess.Popen([self.bin / "postgres", "-D", data, *arguments], stdout=self.log, stderr=self.log,
                                        cwd=self.dir, **self.user)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def dsn(self, user="postgres"):
        return f"host={self.dir} port={self.port} user={user} dbname=postgres"

    def _wait(self):
        import psycopg
        until = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError((self.dir / "log").read_text())
                time.sleep(0.05)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
