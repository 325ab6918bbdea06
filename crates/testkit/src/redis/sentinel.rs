//! A primary, its replica, and three Sentinels that watch them.

use std::fmt::Debug;
use std::process::{Command, Stdio};
use std::str::FromStr;

use tempfile::TempDir;

use super::Server;
use crate::process::KilledOnDrop;
use crate::{free_port, until};

/// A primary and a replica with three Sentinels. The service is called `main`.
pub struct Sentinels {
    servers: Vec<Server>,
    watchers: Vec<(u16, KilledOnDrop)>,
    _folder: TempDir,
}

impl Sentinels {
    /// Starts them, and waits until the replica is in sync and the Sentinels know each other.
    pub fn start() -> Sentinels {
        let primary = Server::start();
        let port = primary.port().to_string();
        let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
        until("the replica is in step", || replica.info("master_link_status").as_deref() == Some("up"));
        let folder =
            tempfile::Builder::new().prefix("dwell-sentinel-").tempdir().expect("a folder can be made");
        let watchers = (0..3).map(|_| watch(&folder, &port)).collect();
        let sentinels = Sentinels { servers: vec![primary, replica], watchers, _folder: folder };
        for (port, _) in &sentinels.watchers {
            until("the Sentinels agree", || {
                ask(*port, &["SENTINEL", "CKQUORUM", "main"]).is_ok()
                    && known(*port, "num-other-sentinels") == "2"
                    && known(*port, "num-slaves") == "1"
            });
        }
        sentinels
    }

    /// The two servers; the first one started as the primary.
    pub fn servers(&mut self) -> &mut [Server] {
        &mut self.servers
    }

    /// The port of the current primary, according to the Sentinels.
    pub fn primary_port(&self) -> Option<u16> {
        let reply = ask(self.watchers[0].0, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]).ok()?;
        let (_, port): (String, u16) = redis::from_redis_value(reply).ok()?;
        Some(port)
    }

    /// Waits until the Sentinels name a primary other than `old`, and that server reports the role too.
    pub fn await_failover(&self, old: u16) {
        until("another primary is named", || {
            let Some(port) = self.primary_port().filter(|port| *port != old) else { return false };
            let server = self.servers.iter().find(|server| server.port() == port);
            server.and_then(|server| server.info("role")).as_deref() == Some("master")
        });
    }

    /// The URL of the Sentinels.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.watchers.iter().map(|(port, _)| format!("127.0.0.1:{port}")).collect();
        format!("redis-sentinel://{}/main", nodes.join(","))
    }

    /// Its URL, parsed as the caller's address type.
    pub fn address<A: FromStr<Err: Debug>>(&self) -> A {
        self.url().parse().expect("it is a URL")
    }
}

fn watch(folder: &TempDir, primary: &str) -> (u16, KilledOnDrop) {
    let port = free_port();
    let file = folder.path().join(format!("{port}.conf"));
    let dir = folder.path().display();
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir {dir}\nlogfile {port}.log\nsentinel monitor main 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n"
    );
    std::fs::write(&file, text).expect("a file can be written");
    let mut command = Command::new(super::server::program());
    command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = command.spawn();
    let child =
        KilledOnDrop(started.unwrap_or_else(|error| panic!("redis-server cannot be started: {error}")));
    until("a Sentinel answers", || ask(port, &["PING"]).is_ok());
    (port, child)
}

fn ask(port: u16, words: &[&str]) -> redis::RedisResult<redis::Value> {
    let timeout = std::time::Duration::from_secs(5);
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query(&mut connection)
}

fn known(port: u16, field: &str) -> String {
    let reply = ask(port, &["SENTINEL", "MASTER", "main"]);
    let pairs: Vec<String> = reply.and_then(|reply| Ok(redis::from_redis_value(reply)?)).unwrap_or_default();
    pairs.chunks(2).find(|pair| pair[0] == field).map(|pair| pair[1].clone()).unwrap_or_default()
}
