//! Calling a script: by its hash, retries while Redis is away, and the meaning of its failures.
//!
//! Ground rule: a call that changes something carries the number of its lane and its own, and a script answers a
//! number that it has answered before with the same answer. So a call whose answer was lost may be repeated, and
//! nothing happens twice. The outcome remains unknown only for a call that is not answered before its timeout.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dwell_store::Error;
use dwell_time::{Clock, SystemClock};
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};

use super::confirm::{ConfirmedConnection, ConfirmedConnections};
use super::inspect::Retries;
use super::layout::{DIRECTORY, PARTITION, Partition};
use super::pack::{Beside, Fields, Pack, PackReply};
use super::recent::Recent;
use super::scripts::{Script, Scripts};
use crate::address::Confirm;
use crate::server_error::Said;
use crate::{AddressKind, Link};

/// How long the server keeps the answer to a call at least, in ms: `KEPT_MS` of `begin.lua`.
const KEPT_MS: u64 = 60_000;

/// How long a brief call is retried, in ms: one that others do not wait for.
const BRIEF_MS: u64 = 500;

/// The number of partitions whose keys are remembered as checked; up to twice as many for a while.
const CHECKED: usize = 32_768;

/// Scripts on one Redis.
pub(super) struct Wire {
    pub(super) link: Link,
    pub(super) scripts: Scripts,
    /// A test's clock, which replaces the server's.
    pub(super) test_clock: Option<std::sync::Arc<dyn Clock>>,
    /// Unique to this process, never used before.
    pub(super) process: [u8; 8],
    lanes: Mutex<CallerPool>,
    next_call: AtomicU64,
    /// Connections for calls that are confirmed.
    confirming: ConfirmedConnections,
    /// Partitions whose keys were checked: they are ours. One that was dropped is checked once more.
    checked: Mutex<Recent<Partition>>,
    patience: SystemClock,
}

/// Lanes that no call uses now, and how many there are.
#[derive(Default)]
struct CallerPool {
    free: Vec<u32>,
    made: u32,
}

/// The result of a try that brought no reply.
enum TryFailure {
    /// Nothing was done, and a retry may help.
    NotNow(String),
    /// It may have been done.
    Unknown(String),
    /// A retry does not help.
    Refused(Error),
    /// The server does not have the script.
    NoScript,
}

impl Wire {
    pub(super) fn new(link: Link, test_clock: Option<std::sync::Arc<dyn Clock>>) -> Wire {
        let scripts = match &test_clock {
            Some(_) => Scripts::on_a_tests_clock(),
            None => Scripts::on_the_servers_clock(),
        };
        Wire {
            confirming: ConfirmedConnections::new(link.address().connections),
            link,
            scripts,
            test_clock,
            process: random().to_be_bytes(),
            lanes: Mutex::default(),
            next_call: AtomicU64::new(1),
            checked: Mutex::new(Recent::new(CHECKED)),
            patience: SystemClock::new(),
        }
    }

    /// The clock for timeouts: never a test's.
    pub(super) fn mono_ms(&self) -> u64 {
        self.patience.now().mono_ms
    }

    /// A lane for calls of a script, if it is called under numbers.
    pub(super) fn lane(&self, script: Script) -> Option<NumberedCaller<'_>> {
        script.is_recorded().then(|| NumberedCaller::enter(self))
    }

    /// Calls a script on a partition, on a lane if it is called under numbers.
    pub(super) async fn call(
        &self,
        at: &Partition,
        script: Script,
        arguments: Fields,
        patience: Retries,
        lane: Option<&NumberedCaller<'_>>,
    ) -> Result<PackReply, Error> {
        let keys = at.keys(self.link.address().prefix());
        let is_checked = locked(&self.checked).get(at).is_some();
        if !is_checked {
            self.check(&keys, &PARTITION, patience).await?;
            locked(&self.checked).meet(at.clone(), ());
        }
        let called = match lane {
            None => self.run(script, &keys, arguments, patience).await,
            Some(lane) => {
                let call = self.next_call.fetch_add(1, Ordering::Relaxed).to_be_bytes();
                let arguments = arguments.with("l", &lane.name()[..]).with("q", &call[..]);
                self.run(script, &keys, arguments, patience).await
            }
        };
        self.named(called, &keys, &PARTITION, patience).await
    }

    /// Calls a script on the directory.
    pub(super) async fn directory(&self, script: Script, arguments: Fields) -> Result<PackReply, Error> {
        self.directory_within(script, arguments, Retries::Usual).await
    }

    pub(super) async fn directory_within(
        &self,
        script: Script,
        arguments: Fields,
        patience: Retries,
    ) -> Result<PackReply, Error> {
        let keys = super::layout::directory(self.link.address().prefix());
        let called = self.run(script, &keys, arguments, patience).await;
        self.named(called, &keys, &DIRECTORY, patience).await
    }

    /// Redis does not say which key has another type than a command needs: looks for it, to name it in the error.
    async fn named(
        &self,
        called: Result<PackReply, Error>,
        keys: &str,
        types: &[(&str, &str)],
        patience: Retries,
    ) -> Result<PackReply, Error> {
        if let Err(Error::ForeignData { .. }) = &called {
            self.check(keys, types, patience).await?;
        }
        called
    }

    /// Checks that no foreign keys lie where ours would.
    async fn check(&self, keys: &str, types: &[(&str, &str)], patience: Retries) -> Result<(), Error> {
        let asked = types.iter().map(|(name, kind)| Pack::from(vec![Pack::from(*name), Pack::from(*kind)]));
        let asked = Fields::new().with("keys", asked.collect::<Vec<_>>());
        let reply = self.run(Script::Check, keys, asked, patience).await?;
        let wrong = reply.get("wrong");
        if let (Some(key), Some(found), Some(expected)) =
            (wrong.at(0).text(), wrong.at(1).text(), wrong.at(2).text())
        {
            return Err(foreign(&format!("the key {key} is a {found} and not a {expected}")));
        }
        Ok(())
    }

    async fn run(
        &self,
        script: Script,
        keys: &str,
        arguments: Fields,
        patience: Retries,
    ) -> Result<PackReply, Error> {
        let confirm = self.link.address().confirm.filter(|_| script.is_recorded() && !arguments.has("peek"));
        let (packed, beside) = arguments.encoded();
        let end_ms = self.mono_ms()
            + match patience {
                Retries::Usual => self.link.address().retry_ms,
                Retries::Once => 0,
                Retries::Brief => self.link.address().retry_ms.min(BRIEF_MS),
            };
        let mut unknown = false;
        let mut pause_ms = 5;
        let mut by_text = false;
        let last_sent_ms = last_sent_ms(self.link.now_ms(), self.link.address().timeout_ms);
        let mut sent_before_ms = u64::MAX;
        loop {
            let ends = (end_ms, sent_before_ms);
            let reason = match self.once(script, keys, (&packed, &beside), by_text, confirm, ends).await {
                Ok(reply) => return Ok(reply),
                Err(TryFailure::NoScript) if !by_text => {
                    by_text = true;
                    continue;
                }
                Err(TryFailure::NoScript) => "the server keeps no script".to_owned(),
                // An earlier try may have done it.
                Err(TryFailure::Refused(error)) if unknown => return Err(unknown_after(error)),
                Err(TryFailure::Refused(error)) => return Err(error),
                Err(TryFailure::NotNow(reason)) => reason,
                Err(TryFailure::Unknown(reason)) => {
                    unknown |= script.is_recorded();
                    if unknown {
                        sent_before_ms = last_sent_ms;
                    }
                    reason
                }
            };
            if self.mono_ms() + pause_ms > end_ms {
                let reason = format!("Redis at {}: {reason}", self.link.address()).into();
                return Err(if unknown {
                    Error::OutcomeUnknown { reason, needs_reopen: false }
                } else {
                    Error::Unavailable { reason }
                });
            }
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(250);
        }
    }

    async fn once(
        &self,
        script: Script,
        keys: &str,
        arguments: (&[u8], &Beside),
        by_text: bool,
        confirm: Option<Confirm>,
        (end_ms, sent_before_ms): (u64, u64),
    ) -> Result<PackReply, TryFailure> {
        let now = self.test_clock.as_ref().map(|clock| clock.now().wall.as_ms());
        let command = match by_text {
            true => self.scripts.by_text(script, keys, arguments, now),
            false => self.scripts.by_hash(script, keys, arguments, now),
        };
        let sent = match confirm {
            Some(confirm) => self.send_confirmed(script, &command, confirm, (end_ms, sent_before_ms)).await?,
            None => self.link.send_before(&command, sent_before_ms).await,
        };
        match sent {
            Ok(Value::BulkString(bytes)) => {
                let reply = PackReply::decode(&Bytes::from(bytes));
                reply.ok_or_else(|| refused("a script's answer cannot be read".to_owned()))
            }
            Ok(Value::Array(parts)) => {
                let reply = with_items(parts);
                reply.ok_or_else(|| refused("a script's answer cannot be read".to_owned()))
            }
            Ok(other) => Err(refused(format!("a script answered {other:?}"))),
            Err(error) => Err(match failure(&error) {
                // For a cluster, the client library returns to a call that was sent the error of another one:
                // `Link::send`.
                TryFailure::NotNow(reason)
                    if self.link.address().kind() == AddressKind::Cluster && error.code().is_none() =>
                {
                    TryFailure::Unknown(reason)
                }
                failure => failure,
            }),
        }
    }

    /// Sends a command on its own connection and waits until replicas have what it wrote.
    ///
    /// A reply that hands out messages is returned, confirmed or not: they would be leased without a holder
    /// otherwise. A lease that a failover loses is void, and its message is handed out again.
    async fn send_confirmed(
        &self,
        script: Script,
        command: &Cmd,
        confirm: Confirm,
        (end_ms, sent_before_ms): (u64, u64),
    ) -> Result<RedisResult<Value>, TryFailure> {
        // A call that is made once has as long as any command.
        let patience_ms = end_ms.saturating_sub(self.mono_ms()).max(self.link.address().timeout_ms);
        let mut connection = match self.confirming.enter(&self.link, patience_ms, || self.mono_ms()).await {
            Some(Ok(connection)) => connection,
            Some(Err(error)) => return Ok(Err(error)),
            None => return Err(TryFailure::NotNow("too many calls wait for replicas".to_owned())),
        };
        if self.link.now_ms() > sent_before_ms {
            self.confirming.keep(connection, self.mono_ms());
            return Err(TryFailure::NotNow("it is too late to send it again".to_owned()));
        }
        let replied = connection.send(command).await;
        let hands_out = matches!(script, Script::Take | Script::TakeId);
        let needs_none = |reply| asks_for_more(reply) || (hands_out && !has_handed_out(reply));
        if replied.as_ref().map_or(true, needs_none) {
            self.leave_confirmed(connection, replied.as_ref().err());
            return Ok(replied);
        }
        let mut wait = match confirm.aof {
            true => redis::cmd("WAITAOF"),
            false => redis::cmd("WAIT"),
        };
        if confirm.aof {
            wait.arg(1);
        }
        wait.arg(confirm.replicas).arg(confirm.within_ms);
        let counted = connection.send(&wait).await;
        self.leave_confirmed(connection, counted.as_ref().err());
        match counted {
            _ if hands_out => Ok(replied),
            Ok(counted) => match missing(&counted, confirm) {
                None => Ok(replied),
                Some(reason) => {
                    let reason = reason.into();
                    Err(TryFailure::Refused(Error::OutcomeUnknown { reason, needs_reopen: false }))
                }
            },
            Err(error) => Err(TryFailure::Unknown(error.to_string())),
        }
    }

    /// Keeps a connection for other calls if this one met no error, or was refused by a server that accepts calls.
    fn leave_confirmed(&self, connection: ConfirmedConnection<'_>, error: Option<&RedisError>) {
        let is_good = error.is_none_or(|error| {
            error.code().is_some() && matches!(failure(error), TryFailure::NoScript | TryFailure::Refused(_))
        });
        match is_good {
            true => self.confirming.keep(connection, self.mono_ms()),
            false => self.confirming.has_failed(connection),
        }
    }

    /// The number of remembered partitions.
    pub(super) fn places(&self) -> usize {
        locked(&self.checked).len()
    }

    /// Closes connections that have been idle for long.
    pub(super) fn tidy(&self) {
        self.confirming.tidy(self.mono_ms());
    }
}

/// A reply whose `items` are not packed with the rest of it, but follow it.
fn with_items(parts: Vec<Value>) -> Option<PackReply> {
    let mut parts = parts.into_iter().map(|part| match part {
        Value::BulkString(bytes) => Some(Bytes::from(bytes)),
        _ => None,
    });
    let PackReply::Map(mut fields) = PackReply::decode(&parts.next()??)? else { return None };
    fields.retain(|(name, _)| name != "items");
    let items = parts.map(|part| part.map(PackReply::Bytes)).collect::<Option<Vec<_>>>()?;
    fields.push((Bytes::from_static(b"items"), PackReply::Array(items)));
    Some(PackReply::Map(fields))
}

/// Whether a script has only returned what it needs to know first, without doing its work.
fn asks_for_more(reply: &Value) -> bool {
    let Value::BulkString(bytes) = reply else { return false };
    let reply = PackReply::decode(&Bytes::copy_from_slice(bytes));
    let says = |word| reply.as_ref().is_some_and(|reply| reply.get(word).is_set());
    ["enter", "others", "past", "more", "partitions"].into_iter().any(says)
}

/// Whether a take, or a take by id, has brought something.
fn has_handed_out(reply: &Value) -> bool {
    match reply {
        Value::Array(parts) => parts.len() > 1,
        Value::BulkString(bytes) => {
            PackReply::decode(&Bytes::copy_from_slice(bytes)).is_some_and(|reply| reply.get("item").is_set())
        }
        _ => false,
    }
}

/// Compares the counts of `WAIT` or `WAITAOF` with the required ones; returns what is missing, if anything.
fn missing(reply: &Value, confirm: Confirm) -> Option<String> {
    let count = |value: &Value| match value {
        Value::Int(count) => u32::try_from(*count).unwrap_or(0),
        _ => 0,
    };
    let (local, replicas) = match reply {
        Value::Array(counts) if counts.len() == 2 => (count(&counts[0]), count(&counts[1])),
        other => (1, count(other)),
    };
    let confirmed = replicas >= confirm.replicas && (local >= 1 || !confirm.aof);
    (!confirmed).then(|| {
        let Confirm { replicas: asked, within_ms, .. } = confirm;
        format!("it was written, and {replicas} of {asked} replicas have confirmed it within {within_ms} ms")
    })
}

/// The error for data that is not ours.
pub(super) fn foreign(what: &str) -> Error {
    let reason = format!(
        "{what}: somebody else writes under this prefix; remove what is not dwell's, or choose another prefix"
    );
    Error::ForeignData { reason: reason.into() }
}

/// The error of a call that may have been partly done before: the original error alone would say that nothing was
/// done.
pub(super) fn unknown_after(error: Error) -> Error {
    match error {
        Error::OutcomeUnknown { .. } => error,
        error => {
            let reason = format!("it may have been done before this: {error}").into();
            Error::OutcomeUnknown { reason, needs_reopen: error.needs_reopen() }
        }
    }
}

/// Until when a call that was first sent at `first_ms`, and may have been done, may be sent again: a server that has
/// dropped the answer would do it again.
///
/// The client library for clusters may take twice the timeout of a call to send it.
fn last_sent_ms(first_ms: u64, timeout_ms: u64) -> u64 {
    (first_ms + KEPT_MS).saturating_sub(2 * timeout_ms + 1_000)
}

fn refused(reason: String) -> TryFailure {
    TryFailure::Refused(Error::Unavailable { reason: reason.into() })
}

/// What an error means, by its kind or by the code that the server or a script of ours has given it.
fn failure(error: &RedisError) -> TryFailure {
    let text = error.to_string();
    if error.is_connection_refusal() {
        return TryFailure::NotNow(text);
    }
    match error.kind() {
        ErrorKind::ClusterConnectionNotFound => return TryFailure::NotNow(text),
        // A connection that ends inside a reply is an error of the parser.
        ErrorKind::Io | ErrorKind::Parse => return TryFailure::Unknown(text),
        _ => {}
    }
    let Some(said) = Said::of(error) else { return refused(text) };
    match said.code {
        "NOSCRIPT" => TryFailure::NoScript,
        "LOADING" | "READONLY" | "BUSY" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK"
        | "NOREPLICAS" | "MISCONF" => TryFailure::NotNow(text),
        "OOM" => {
            let reason = "Redis has no memory left (maxmemory)".into();
            TryFailure::Refused(Error::DiskFull { reason })
        }
        "DWELLVERSION" => {
            let reason = format!("{}; use the version of dwell that wrote it, or another prefix", said.text);
            TryFailure::Refused(Error::ForeignData { reason: reason.into() })
        }
        "DWELLFOREIGN" => TryFailure::Refused(foreign(said.text.trim_matches([':', ' ', '.']))),
        "WRONGTYPE" => TryFailure::Refused(foreign(&text)),
        _ if said.text.starts_with("Script killed by user") => TryFailure::NotNow(text),
        _ if said.text.starts_with("max number of clients reached") => TryFailure::NotNow(text),
        _ if is_unread(said.text) => TryFailure::Refused(foreign(&text)),
        _ => refused(text),
    }
}

/// MessagePack and `struct` inside Redis fail with these texts on data that was not packed: they have no codes.
fn is_unread(text: &str) -> bool {
    text.starts_with("Missing bytes in input")
        || text.starts_with("Bad data format in input")
        || (text.starts_with("bad argument #") && text.ends_with("(data string too short)"))
}

/// A lane, which one call at a time uses exclusively: of calls that arrive late, all but the latest are refused. A
/// caller who has to call several times for one thing keeps to one lane.
pub(super) struct NumberedCaller<'a> {
    wire: &'a Wire,
    number: u32,
}

impl<'a> NumberedCaller<'a> {
    /// 10 bytes, or 12 if there are more concurrent calls than two bytes count: the server keeps a name for each.
    fn name(&self) -> Vec<u8> {
        let process = &self.wire.process[..];
        match u16::try_from(self.number) {
            Ok(number) => [process, &number.to_be_bytes()].concat(),
            Err(_) => [process, &self.number.to_be_bytes()].concat(),
        }
    }

    fn enter(wire: &'a Wire) -> NumberedCaller<'a> {
        let mut lanes = locked(&wire.lanes);
        let number = lanes.free.pop().unwrap_or_else(|| {
            lanes.made += 1;
            lanes.made
        });
        NumberedCaller { wire, number }
    }
}

impl Drop for NumberedCaller<'_> {
    fn drop(&mut self) {
        locked(&self.wire.lanes).free.push(self.number);
    }
}

/// No foreign code runs under our locks, so a panic elsewhere leaves what they guard intact.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 64 bits that no other process has: the standard library's seeds come from the operating system.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure of a call on a store under the prefix `ROOM`, from the server's error line.
    fn met_with(line: &str) -> TryFailure {
        let answered = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        failure(&answered.extract_error().unwrap_err())
    }

    #[test]
    fn what_is_sent_again_at_the_last_comes_a_second_before_its_answer_is_forgotten() {
        for timeout_ms in [1, 250, 10_000, 29_000] {
            assert_eq!(last_sent_ms(7_000, timeout_ms) + 2 * timeout_ms, 7_000 + KEPT_MS - 1_000);
        }
        assert_eq!(last_sent_ms(7_000, 40_000), 0, "it is never sent again");
    }

    #[test]
    fn an_error_that_names_a_key_is_not_taken_for_what_the_key_is_called() {
        let hash = "86fde4ef5751c44fce94a7d39215086ca601922b";
        for prefix in
            ["ROOM", "OOM", "READONLY", "LOADING", "x BUSY", "NOSCRIPT", "WRONGTYPE", "DWELLVERSION"]
        {
            let named = format!("DWELLFOREIGN the key {prefix}:{{ab}}:meta is a string");
            for line in [
                format!("ERR Error running script (call to f_{hash}): @user_script:55: {named}"),
                format!("ERR {named} script: {hash}, on @user_script:55."),
            ] {
                let failure = met_with(&line);
                let TryFailure::Refused(Error::ForeignData { reason }) = &failure else { panic!("{line}") };
                assert!(
                    reason.contains(&format!("key {prefix}:{{ab}}:meta is a string: somebody")),
                    "{reason}"
                );
            }
            let other = met_with(&format!("ERR no room for {prefix}"));
            assert!(matches!(other, TryFailure::Refused(Error::Unavailable { .. })), "{prefix}");
        }
    }

    /// Two calls on one lane would refuse each other.
    #[tokio::test]
    async fn more_calls_than_two_bytes_count_have_a_lane_each() {
        let server = dwell_testkit::redis::Server::start();
        let wire = Wire::new(Link::open(server.address()).await.unwrap(), None);
        let lanes: Vec<_> = (0..65_537).map(|_| wire.lane(Script::Take).unwrap()).collect();
        let names: std::collections::HashSet<_> = lanes.iter().map(NumberedCaller::name).collect();
        assert_eq!(names.len(), lanes.len());
    }

    /// Each is asked for once, as by a consumer of ever other queues.
    #[tokio::test]
    async fn partitions_that_were_asked_for_once_are_not_kept_for_ever() {
        let server = dwell_testkit::redis::Server::start();
        let wire = Wire::new(Link::open(server.address()).await.unwrap(), None);
        let scripts = || -> usize {
            let told = server.info("cmdstat_evalsha").unwrap_or_default();
            told.split(['=', ',']).nth(1).map_or(0, |calls| calls.parse().unwrap())
        };
        let name = |n: usize| dwell_model::QueueName::new(&format!("q{n}")).unwrap();
        // The number of scripts that a check of a partition takes.
        let look = async |n: usize| {
            let (at, before) = (Partition::new(&name(n), 0), scripts());
            let process = Fields::new().with("process", &wire.process[..]);
            wire.call(&at, Script::Holds, process, Retries::Usual, None).await.unwrap();
            scripts() - before
        };
        // The server has both scripts from here on.
        look(0).await;
        assert_eq!((look(1).await, look(1).await, wire.places()), (2, 1, 2), "it is checked, and then known");
        for n in 2..3 * CHECKED {
            locked(&wire.checked).meet(Partition::new(&name(n), 0), ());
        }
        let kept = wire.places();
        assert!((CHECKED..=2 * CHECKED).contains(&kept), "{kept} are remembered");
        assert_eq!(look(3 * CHECKED - 1).await, 1, "one of late");
        assert_eq!((look(1).await, look(1).await), (2, 1), "one that was forgotten is checked once more");
    }

    #[test]
    fn errors_are_told_by_their_codes() {
        let wrapped = |said: &str| format!("ERR Error running script (call to f_00): @user_script:1: {said}");
        for line in ["OOM command not allowed", &wrapped("@user_script: 1: -OOM command not allowed")] {
            assert!(matches!(met_with(line), TryFailure::Refused(Error::DiskFull { .. })), "{line}");
        }
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script",
            "CLUSTERDOWN The cluster is down",
            "NOREPLICAS Not enough good replicas to write.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "READONLY You can't write against a read only replica. script: 00, on @user_script:1.",
            &wrapped("@user_script: 1: -READONLY You can't write against a read only replica."),
            &wrapped("Script killed by user with SCRIPT KILL..."),
            "ERR Script killed by user with SCRIPT KILL... script: 00, on @user_script:1.",
        ] {
            assert!(matches!(met_with(line), TryFailure::NotNow(_)), "{line}");
        }
        for line in [
            "WRONGTYPE Operation against a key holding the wrong kind of value script: 00, on @user_script:1.",
            &wrapped("WRONGTYPE Operation against a key holding the wrong kind of value"),
            &wrapped("user_script:2: Missing bytes in input."),
            "ERR user_script:2: Bad data format in input. script: 00, on @user_script:2.",
            "ERR user_script:1: bad argument #2 to 'unpack' (data string too short) script: 00, on @user_script:1.",
            "DWELLVERSION layout 9 is not known to this version of dwell",
        ] {
            assert!(matches!(met_with(line), TryFailure::Refused(Error::ForeignData { .. })), "{line}");
        }
        assert!(matches!(met_with("NOSCRIPT No matching script. Please use EVAL."), TryFailure::NoScript));
    }
}
