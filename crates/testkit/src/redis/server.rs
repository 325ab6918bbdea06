//! A single server.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use tempfile::TempDir;

use crate::process::KilledOnDrop;
use crate::{free_port, until};

/// A running `redis-server`, stopped on drop. Its data folder is removed with it.
pub struct Server {
    port: u16,
    options: Vec<String>,
    password: Option<String>,
    child: KilledOnDrop,
    folder: TempDir,
}

impl Server {
    /// Starts a server without persistence.
    pub fn start() -> Server {
        Server::start_with(&["--appendonly", "no"])
    }

    /// Starts a server whose append-only file is synced before every reply.
    pub fn durable() -> Server {
        Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts a server that requires this password.
    pub fn with_password(password: &str) -> Server {
        Server::launch(&["--requirepass".to_owned(), password.to_owned()], Some(password))
    }

    /// Starts a server with these command line options.
    pub fn start_with(options: &[&str]) -> Server {
        let options: Vec<_> = options.iter().map(|option| (*option).to_owned()).collect();
        Server::launch(&options, None)
    }

    /// Another process may take a free port before the server does. The server then exits, and the next port is tried.
    fn launch(options: &[String], password: Option<&str>) -> Server {
        for _ in 0..10 {
            let folder = tempfile::Builder::new().prefix("dwell-redis-").tempdir();
            let folder = folder.expect("a folder can be made");
            let port = free_port();
            let child = spawn(port, folder.path(), options);
            let password = password.map(str::to_owned);
            let mut server = Server { port, options: options.to_vec(), password, child, folder };
            if server.comes_up() {
                return server;
            }
        }
        panic!("no free port stays free until a server has it, or no server starts with {options:?}");
    }

    /// Waits until it answers, or has exited.
    fn comes_up(&mut self) -> bool {
        let mut has_ended = false;
        until("a server answers", || {
            has_ended = matches!(self.child.0.try_wait(), Ok(Some(_)));
            has_ended || self.is_ready()
        });
        !has_ended
    }

    /// Whether it answers, and is not another server on its port.
    fn is_ready(&self) -> bool {
        let is_ours = self.info("process_id").is_some_and(|pid| pid == self.pid().to_string());
        let pong = redis::Value::SimpleString("PONG".into());
        is_ours && self.try_command(&["PING"]).is_ok_and(|reply| reply == pong)
    }

    /// The port on 127.0.0.1 that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data folder.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Its URL, with the password if it requires one.
    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// Its URL, parsed as the caller's address type.
    pub fn address<A: FromStr<Err: Debug>>(&self) -> A {
        self.url().parse().expect("it is a URL")
    }

    /// Sends it a command over a new connection.
    ///
    /// # Errors
    /// Those of the server or the connection.
    pub fn try_command(&self, words: &[&str]) -> redis::RedisResult<redis::Value> {
        let timeout = std::time::Duration::from_secs(5);
        let mut connection = redis::Client::open(self.url())?.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query(&mut connection)
    }

    /// As [`try_command`](Server::try_command), but panics on an error.
    #[track_caller]
    pub fn command(&self, words: &[&str]) -> redis::Value {
        self.try_command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// A field of `INFO`.
    pub fn info(&self, field: &str) -> Option<String> {
        let text: String = redis::from_redis_value(self.try_command(&["INFO", "everything"]).ok()?).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    }

    /// The number of connections with a subscription.
    pub fn subscribers(&self) -> usize {
        let list = super::text(self.command(&["CLIENT", "LIST", "TYPE", "pubsub"]));
        list.lines().filter(|line| line.contains(" cmd=")).count()
    }

    /// Kills it, as in a crash.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Restarts it on the same port and data, and waits until it answers.
    pub fn start_again(&mut self) {
        self.begin_again(&[]);
        assert!(self.comes_up(), "the server has ended: its port may have been taken");
    }

    /// Restarts it on the same port and data, with more options, and does not wait.
    pub fn begin_again(&mut self, more: &[&str]) {
        self.kill();
        let options: Vec<_> =
            self.options.iter().cloned().chain(more.iter().map(|option| (*option).to_owned())).collect();
        self.child = spawn(self.port, self.folder.path(), &options);
    }
}

/// The program that tests start: `DWELL_REDIS_SERVER`, or else the one in the path.
pub(super) fn program() -> PathBuf {
    std::env::var_os("DWELL_REDIS_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
}

fn spawn(port: u16, folder: &Path, options: &[String]) -> KilledOnDrop {
    let program = program();
    let mut command = Command::new(&program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no", "--save", ""]);
    command.args(["--dir", &folder.display().to_string(), "--logfile", "redis.log"]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = command.spawn();
    KilledOnDrop(started.unwrap_or_else(|error| {
        panic!("{} cannot be started ({error}): apt-get install redis-server", program.display())
    }))
}
