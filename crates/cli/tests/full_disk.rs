//! A disk that fills up under the real server: puts are refused with a typed error over HTTP, on the command line and
//! over beanstalkd's protocol; acks and cancels succeed; with room again puts succeed, and nothing is lost.
//!
//! The disk is a file system in memory of a few megabytes, mounted in a private namespace (Linux, user namespaces).
//! Where the system does not allow that, the test says so and checks nothing.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{PATIENCE, Server, run, serve_with};
use dwell_client::Client;
use dwell_model::{MessageId, QueueName, Setting, SettingChange};
use dwell_store::{Action, Blocking, Delivery, Error, Put, Settle, Take};

/// A separate mount namespace, in which this user is root.
const OWN_MOUNTS: [&str; 3] = ["--map-root-user", "--mount", "--"];
/// Where the small disk is mounted.
const DISK: &str = "DWELL_TEST_SMALL_DISK";

#[test]
fn a_disk_that_runs_full_refuses_puts_alone_and_loses_nothing() {
    let disk = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=8m small \"$0\" && exec \"$@\"";
    let unshare = |program: &str, args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(OWN_MOUNTS).args(["sh", "-c", mount]).arg(disk.path()).arg(program).args(args);
        command
    };
    let allowed = unshare("true", &[]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("not applicable: this system mounts no file system for an ordinary user");
        return;
    }
    let this = std::env::current_exe().unwrap();
    let body = ["--exact", "on_this_small_disk", "--ignored", "--nocapture"];
    let mut command = unshare(this.to_str().unwrap(), &body);
    command.env(DISK, disk.path());
    let ran = run(command);
    print!("{}", ran.stdout);
    assert!(ran.stdout.contains("1 passed"), "{ran:?}");
}

#[test]
#[ignore = "run by a_disk_that_runs_full_refuses_puts_alone_and_loses_nothing, in mounts of its own"]
fn on_this_small_disk() {
    let disk = std::env::var_os(DISK).unwrap();
    let disk = Path::new(&disk);
    let (data, ballast) = (disk.join("data"), disk.join("ballast"));
    // Room that is freed later.
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let mut full = Full { server: serve(&data), accepted: BTreeMap::new() };
    // A put's idempotency key keeps its segment.
    full.client().configure(queue(), vec![SettingChange::Set(Setting::IdempotencyMs(1))]).unwrap();

    // Messages that are settled on the full disk.
    let held: Vec<_> = (0..3).map(|n| full.put(&format!("held {n}")).unwrap()).collect();
    let receipts: Vec<_> = full.client().take(Take::from(queue()).max(3)).unwrap();
    assert_eq!(receipts.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), held);
    let doomed = full.put("doomed").unwrap();

    full.fill();
    full.refused_everywhere();

    // Calls that free space succeed.
    for delivery in receipts {
        full.client().settle_one(Settle { receipt: delivery.receipt, action: Action::Ack }).unwrap();
        full.accepted.remove(&delivery.message.id).unwrap();
    }
    full.server.dwell(&["cancel", "q", &doomed.to_string()]).ok();
    full.accepted.remove(&doomed).unwrap();
    full.ack_some(5);

    // The server is killed on the full disk and starts again there.
    full.server.kill();
    full.server = serve(&data);
    full.ack_some(5);
    full.refused_everywhere();

    // Room is freed, and nothing is reopened.
    fs::remove_file(&ballast).unwrap();
    full.server.dwell(&["put", "other", "x"]).ok();
    full.put_in_the_end("there is room again");
    full.fill();
    full.refused_everywhere();

    // Room is also freed when messages are removed.
    let mut left = full.accepted.len();
    while left > 0 {
        full.ack_some(100);
        assert!(full.accepted.len() < left, "{left} messages that were answered are not there");
        left = full.accepted.len();
    }
    full.put_in_the_end("all went");
    full.ack_some(1);
    assert!(full.accepted.is_empty());
}

fn serve(data: &Path) -> Server {
    let args = ["--listen", "127.0.0.1:0", "--beanstalkd", "127.0.0.1:0", "--segment", "1MiB"];
    serve_with(data, &args)
}

fn queue() -> QueueName {
    "q".parse().unwrap()
}

/// A server on a small disk, and the first words of the messages whose puts it has answered.
struct Full {
    server: Server,
    accepted: BTreeMap<MessageId, String>,
}

impl Full {
    fn client(&self) -> Blocking<Client> {
        Client::new(self.server.url()).unwrap().blocking()
    }

    fn put(&mut self, words: &str) -> Result<MessageId, Error> {
        let body = format!("{words}\n{}", "x".repeat(64 << 10));
        let id = self.client().put_one(Put::new(queue(), body))?.id;
        self.accepted.insert(id, words.to_owned());
        Ok(id)
    }

    /// The same, where a flush is still about to free room.
    fn put_in_the_end(&mut self, words: &str) {
        let refused = |full: &mut Full| full.put(words).err();
        let last = (0..10_000).map_while(|_| refused(self)).last();
        assert!(self.accepted.values().any(|put| put == words), "{last:?}");
    }

    /// Puts until there is no room.
    fn fill(&mut self) {
        for n in 0..1_000 {
            match self.put(&format!("message {n}")) {
                Ok(_) => {}
                Err(error @ Error::DiskFull { .. }) => {
                    assert!(error.is_retryable());
                    assert!(n > 10, "after {n} messages");
                    return;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        panic!("8 MiB hold no 1,000 messages of 64 KiB");
    }

    /// Puts are refused over HTTP (see `fill`), on the command line, and over beanstalkd's protocol, and nothing of them is
    /// put. A flush that begins early on a full disk may make room for a few before.
    fn refused_everywhere(&mut self) {
        let before = self.others();
        let on_the_command_line = |server: &Server, _: u64| {
            let ran = server.dwell_with(&["put", "other", "-"], &[b'x'; 64 << 10]);
            ran.code == 0 || {
                assert_eq!((ran.code, ran.failure().as_str()), (1, "disk_full"));
                false
            }
        };
        let from_a_file = |server: &Server, n: u64| {
            // The same file again would be the same put.
            let body = format!("{before} {n} {}", "x".repeat(64 << 10));
            let line = format!("{{\"queue\":\"other\",\"body\":\"{body}\"}}\n");
            let ran = server.dwell_with(&["put", "--from", "-", "--retry-for", "0s"], line.as_bytes());
            ran.code == 0 || {
                assert_eq!((ran.code, ran.failure().as_str()), (1, "disk_full"));
                false
            }
        };
        let over_beanstalkd = |server: &Server, _: u64| {
            let mut stream = TcpStream::connect(server.serving["beanstalkd"].as_str().unwrap()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let body = vec![b'x'; 65_000];
            stream.write_all(b"use other\r\nput 0 0 60 65000\r\n").unwrap();
            stream.write_all(&[&body, b"\r\n".as_slice()].concat()).unwrap();
            let mut replies = BufReader::new(stream).lines().map(Result::unwrap);
            assert_eq!(replies.next().as_deref(), Some("USING other"));
            let reply = replies.next().unwrap();
            reply.starts_with("INSERTED ") || {
                assert_eq!(reply, "OUT_OF_MEMORY");
                false
            }
        };
        type IsTakenIn<'a> = &'a dyn Fn(&Server, u64) -> bool;
        let faces: [IsTakenIn<'_>; 3] = [&on_the_command_line, &from_a_file, &over_beanstalkd];
        let mut taken_in = 0;
        for is_taken_in in faces {
            while is_taken_in(&self.server, taken_in) {
                taken_in += 1;
                assert!(taken_in < 100, "8 MiB hold no 100 messages of 64 KiB more");
            }
        }
        assert_eq!(self.others(), before + taken_in, "what was refused was not put");
    }

    /// The number of messages in the other queue.
    fn others(&self) -> u64 {
        self.client().stats("other".parse().unwrap()).map_or(0, |stats| stats.counts.ready)
    }

    /// Takes and acks up to `max` messages, each of which was put.
    fn ack_some(&mut self, max: usize) {
        let client = self.client();
        let taken = client.take(Take::from(queue()).max(max)).unwrap();
        let settle = |delivery: &Delivery| {
            let body = String::from_utf8(delivery.message.body.to_vec()).unwrap();
            let words = body.split('\n').next().unwrap();
            assert_eq!(self.accepted.remove(&delivery.message.id).as_deref(), Some(words));
            Settle { receipt: delivery.receipt.clone(), action: Action::Ack }
        };
        let settles: Vec<Settle> = taken.iter().map(settle).collect();
        for settled in client.settle(settles) {
            settled.unwrap();
        }
    }
}
