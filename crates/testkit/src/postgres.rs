//! A PostgreSQL server on a free port of the loopback interface, with a temporary data directory.
//!
//! It needs `initdb` and `postgres`: in the folder that `DWELL_POSTGRES_BIN` names, in the path, or where Debian
//! installs them. PostgreSQL refuses to run as root, so it then runs as the user `postgres` or `nobody`.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use tempfile::TempDir;

use crate::process::{KilledOnDrop, send_signal};
use crate::{free_port, until};

/// The versions in Debian's folders, tried from the newest down.
const VERSIONS: std::ops::RangeInclusive<u32> = 13..=18;

/// A running server, stopped when it is dropped, or when the test's process ends. Its data folder is removed with it.
pub struct Server {
    port: u16,
    options: Vec<String>,
    child: KilledOnDrop,
    watch: Watch,
    folder: TempDir,
    user: Option<User>,
}

/// Stops a server whose test has ended without dropping it, such as one in a static.
///
/// It detects that when its standard input is closed.
struct Watch {
    #[expect(dead_code, reason = "held, not read: it is killed where its work is done by others")]
    shell: KilledOnDrop,
    #[expect(dead_code, reason = "held, not read")]
    input: ChildStdin,
}

impl Watch {
    fn over(server: &KilledOnDrop, signal: &str, folder: &Path) -> Watch {
        let mut command = Command::new("sh");
        // The pause lets the server, which was asked to stop, exit before its folder is removed.
        let script = "cat >/dev/null; kill -$1 $0 2>/dev/null && sleep 1; rm -rf \"$2\"";
        command.args(["-c", script, &server.0.id().to_string(), signal]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = KilledOnDrop(command.spawn().expect("there is a shell"));
        let input = shell.0.stdin.take().expect("it is piped");
        Watch { shell, input }
    }
}

/// What a server needs to speak TLS, as texts in PEM, and which clients it accepts.
pub struct Tls {
    /// The server's certificate, followed by its chain.
    pub certificate: String,
    /// The server's key.
    pub key: String,
    /// The authorities that clients' certificates must be signed by, if any.
    pub client_ca: Option<String>,
    /// The text of `pg_hba.conf`: `hostssl` lines are for TLS alone, and `cert` in them asks for a certificate.
    pub hba: String,
}

/// The user that runs the server, if not the user of the test.
#[derive(Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl Server {
    /// Starts a server that trusts local connections as `postgres`, and does not sync to disk.
    pub fn start() -> Server {
        Server::start_with(&["-c", "fsync=off"])
    }

    /// Starts a server with these command line options.
    pub fn start_with(options: &[&str]) -> Server {
        Server::start_from(options, |_, _| ())
    }

    /// A server that speaks TLS, and lets in whom its `pg_hba.conf` names. It does not wait for the disk.
    pub fn start_with_tls(tls: &Tls) -> Server {
        let mut options = vec!["-c", "fsync=off", "-c", "ssl=on"];
        if tls.client_ca.is_some() {
            options.extend(["-c", "ssl_ca_file=root.crt"]);
        }
        Server::start_from(&options, |data, user| {
            let mut files =
                vec![("server.crt", &tls.certificate), ("server.key", &tls.key), ("pg_hba.conf", &tls.hba)];
            files.extend(tls.client_ca.as_ref().map(|ca| ("root.crt", ca)));
            for (name, text) in files {
                let file = data.join(name);
                fs::write(&file, text).expect("a file can be made");
                // It refuses a key that others may read, or that belongs to somebody else.
                fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("the file is ours");
                if let Some(user) = user {
                    chown(&file, Some(user.uid), Some(user.gid)).expect("root may give a file away");
                }
            }
        })
    }

    /// The same, with what is done to its data directory before it starts.
    fn start_from(options: &[&str], prepare: impl FnOnce(&Path, Option<User>)) -> Server {
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        let (folder, user, data) = folder_for_data();
        let mut initdb = command("initdb", user);
        initdb.arg("-D").arg(&data);
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
        let made = initdb.current_dir(&data).output().unwrap_or_else(|error| panic!("{initdb:?}: {error}"));
        assert!(made.status.success(), "{initdb:?}: {}", String::from_utf8_lossy(&made.stderr));
        prepare(&data, user);
        Server::start_in(folder, &data, options, user)
    }

    /// Starts a server on this data.
    fn start_in(folder: TempDir, data: &Path, options: Vec<String>, user: Option<User>) -> Server {
        // Another process may take a free port before the server does. The server then exits, and the next port is
        // tried.
        for _ in 0..10 {
            let port = free_port();
            if let Some(child) = begin(port, data, &options, user) {
                let watch = Watch::over(&child, "INT", folder.path());
                return Server { port, options, child, watch, folder, user };
            }
        }
        panic!("no server starts: {}", log(data));
    }

    /// Starts a standby of it, which replicates asynchronously. It accepts writes once `pg_promote()` was called on it.
    pub fn start_standby(&self) -> Server {
        let (folder, user, data) = folder_for_data();
        let mut backup = command("pg_basebackup", user);
        backup.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres"]);
        backup.args(["-R", "-X", "stream", "-c", "fast", "--no-sync"]);
        let made = backup.current_dir(&data).output().unwrap_or_else(|error| panic!("{backup:?}: {error}"));
        assert!(made.status.success(), "{backup:?}: {}", String::from_utf8_lossy(&made.stderr));
        Server::start_in(folder, &data, self.options.clone(), user)
    }

    /// The port on 127.0.0.1 that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of one of its databases, for the superuser.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs SQL as the superuser with `psql`, for tests without a client of their own.
    pub fn psql(&self, database: &str, sql: &str) {
        let mut psql = command("psql", None);
        psql.args(["--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-d", &self.url(database), "-c", sql]);
        let ran = psql.output().unwrap_or_else(|error| panic!("{psql:?}: {error}"));
        assert!(ran.status.success(), "{psql:?}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// What it has logged since it started.
    pub fn log(&self) -> String {
        log(&self.folder.path().join("data"))
    }

    /// Kills it, as in a crash.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Kills it and copies its data, as a snapshot of its disk has them.
    pub fn kill_and_copy(&mut self) -> DataCopy {
        self.kill();
        let (folder, _, data) = folder_for_data();
        replace(&self.folder.path().join("data"), &data);
        DataCopy { folder }
    }

    /// Kills it, and starts it on the same port with a copy in place of its data.
    pub fn start_again_from(&mut self, copy: &DataCopy) {
        self.kill();
        let data = self.folder.path().join("data");
        replace(&copy.folder.path().join("data"), &data);
        self.start_again();
    }

    /// Restarts it on the same port and data, and waits until it listens.
    pub fn start_again(&mut self) {
        self.kill();
        let data = self.folder.path().join("data");
        // A killed server leaves its lock file, and backends that take a moment to notice. Until they exit, no other
        // server starts.
        let mut child = None;
        until("the server to start again", || {
            child = begin(self.port, &data, &self.options, self.user);
            child.is_some()
        });
        self.child = child.unwrap_or_else(|| panic!("it does not start again: {}", log(&data)));
        self.watch = Watch::over(&self.child, "INT", self.folder.path());
    }
}

/// A copy of a server's data.
pub struct DataCopy {
    folder: TempDir,
}

/// Puts a copy of one folder, with its owners and rights, in the place of another.
fn replace(from: &Path, to: &Path) {
    fs::remove_dir_all(to).expect("it is ours");
    let mut copy = Command::new("cp");
    let copied = copy.arg("-a").arg(from).arg(to).status().expect("there is cp");
    assert!(copied.success(), "{copy:?}");
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.0.try_wait(), Ok(None)) {
            // Fast shutdown: its backends end with it. If only the first process were killed, they would stay for a
            // moment.
            send_signal(self.pid(), "INT");
            let _ = self.child.0.wait();
        }
    }
}

/// PgBouncer in transaction mode in front of a server: each statement may use another of its few connections.
///
/// Needs `pgbouncer`.
pub struct Bouncer {
    port: u16,
    _child: KilledOnDrop,
    _watch: Watch,
    _folder: TempDir,
}

impl Bouncer {
    /// Starts one for all databases of a server.
    pub fn start(server: &Server) -> Bouncer {
        let user = other_user();
        for _ in 0..10 {
            let folder =
                tempfile::Builder::new().prefix("dwell-bouncer-").tempdir().expect("a folder can be made");
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))
                .expect("the folder is ours");
            let port = free_port();
            let settings = format!(
                "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 500\n",
                server.port
            );
            let file = folder.path().join("pgbouncer.ini");
            fs::write(&file, settings).expect("a file can be made");
            let mut command = Command::new("pgbouncer");
            if let Some(user) = user {
                command.uid(user.uid).gid(user.gid);
            }
            command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let started = command.spawn();
            let mut child = KilledOnDrop(started.unwrap_or_else(|error| {
                panic!("pgbouncer cannot be started ({error}): apt-get install pgbouncer")
            }));
            let mut has_ended = false;
            until("PgBouncer takes connections", || {
                has_ended = matches!(child.0.try_wait(), Ok(Some(_)));
                has_ended || TcpStream::connect(("127.0.0.1", port)).is_ok()
            });
            if !has_ended {
                let watch = Watch::over(&child, "TERM", folder.path());
                return Bouncer { port, _child: child, _watch: watch, _folder: folder };
            }
        }
        panic!("no free port stays free until PgBouncer has it");
    }

    /// The URL of a database through it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

/// A temporary folder with an empty data directory, and the user that owns it.
fn folder_for_data() -> (TempDir, Option<User>, PathBuf) {
    let folder = tempfile::Builder::new().prefix("dwell-postgres-").tempdir().expect("a folder can be made");
    let user = other_user();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).expect("the folder is ours");
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("a folder can be made");
    // A server refuses a data directory that others may write to.
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("the folder is ours");
    if let Some(user) = user {
        chown(&data, Some(user.uid), Some(user.gid)).expect("root may give a folder away");
    }
    (folder, user, data)
}

/// Starts a server and waits until it accepts connections; `None` if it has exited.
fn begin(port: u16, data: &Path, options: &[String], user: Option<User>) -> Option<KilledOnDrop> {
    let mut server = command("postgres", user);
    server.arg("-D").arg(data);
    let settings = [
        "listen_addresses=127.0.0.1",
        &format!("port={port}"),
        "unix_socket_directories=",
        "shared_buffers=64MB",
        "max_connections=200",
        "max_prepared_transactions=10",
    ];
    for setting in settings {
        server.args(["-c", setting]);
    }
    let log = fs::File::create(data.join("server.log")).expect("a file can be made");
    server.args(options).current_dir(data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut child = KilledOnDrop(server.spawn().unwrap_or_else(|error| panic!("{server:?}: {error}")));
    let mut has_ended = false;
    until("a server takes connections", || {
        has_ended = matches!(child.0.try_wait(), Ok(Some(_)));
        // The file is complete, and has one of these statuses, once the server accepts connections.
        let is_ready = fs::read_to_string(data.join("postmaster.pid")).is_ok_and(|text| {
            text.lines().last().is_some_and(|line| ["ready", "standby"].contains(&line.trim()))
        });
        has_ended || (is_ready && TcpStream::connect(("127.0.0.1", port)).is_ok())
    });
    (!has_ended).then_some(child)
}

fn log(data: &Path) -> String {
    fs::read_to_string(data.join("server.log")).unwrap_or_default()
}

/// A program of PostgreSQL, run as a user that is permitted to.
fn command(name: &str, user: Option<User>) -> Command {
    let mut command = Command::new(folder().map_or_else(|| name.into(), |folder| folder.join(name)));
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// The folder of the programs; `None` for the path.
fn folder() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("DWELL_POSTGRES_BIN") {
        return Some(named.into());
    }
    let in_path = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("initdb").exists()));
    let debian = || VERSIONS.rev().map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    if in_path { None } else { debian().find(|folder| folder.join("initdb").exists()) }
}

/// The user to run it as, if the test runs as root.
fn other_user() -> Option<User> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?;
    if uid != "0" {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("a system has users");
    let find = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some(User { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    };
    Some(find("postgres").or_else(|| find("nobody")).expect("a system has the user nobody"))
}
