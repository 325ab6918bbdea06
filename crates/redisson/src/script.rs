//! The Lua scripts: each `.lua` file with the parts it depends on, called by its digest.
//!
//! Ground rule: a call that changes something carries a lane and a call number. A script that has already replied to a
//! number sends the same reply again and does nothing (`lua/answer.lua`). So a call whose reply was lost is retried
//! here. The outcome stays unknown only if the retries are not answered either.
//!
//! The reply to a call that changed nothing is not stored, which saves a write. Only where a lost or abandoned call may
//! still arrive, the next call of its lane says so, and its number is stored in any case: `answer.lua` refuses the late
//! one.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dwell_redis::{AddressKind, Link};
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind};

use super::error::Error;
use super::keys::Keys;

/// A script.
pub(crate) struct Script {
    code: String,
    sha1: String,
    /// Whether it changes something, and so carries a call number.
    changes: bool,
}

impl Script {
    fn new(parts: &[&str], changes: bool) -> Script {
        let mut all = vec![include_str!("lua/common.lua")];
        all.extend(changes.then_some(include_str!("lua/answer.lua")));
        all.extend(parts);
        let code = all.concat();
        let sha1 = redis::Script::new(&code).get_hash().to_owned();
        Script { code, sha1, changes }
    }

    /// Runs it on the keys of a queue. If the server does not know its digest, its text is sent.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        link: &Link,
        of: &Keys,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> RedisResult<T> {
        // A read-only call needs no lane.
        let mut lane = self.changes.then(|| NumberedCaller::enter(link, of));
        let (mut keys, mut arguments) = (keys.to_vec(), arguments.to_vec());
        if let Some(lane) = &lane {
            keys.push(of.answer(&lane.name()));
            let mut call = CALLS.fetch_add(1, Ordering::Relaxed).to_be_bytes().to_vec();
            call.extend(lane.is_doubtful.then_some(DOUBT));
            arguments.push(call);
        }
        let answer = self.call_again(link, &keys, &mut arguments).await;
        if let Some(lane) = &mut lane {
            lane.is_doubtful = match &answer {
                Ok(_) => false,
                // It was refused before it could store a number.
                Err(error) => lane.is_doubtful || error.code().is_none(),
            };
            lane.has_ended = true;
        }
        answer
    }

    /// Sends the call, and retries it when its reply is lost.
    async fn call_again<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: &[String],
        arguments: &mut [Vec<u8>],
    ) -> RedisResult<T> {
        #[cfg(feature = "testing")]
        if self.changes && super::testing::REPEATS.get() {
            self.run::<redis::Value>(link, keys, arguments).await?;
        }
        let mut lost = None;
        for pause in AGAIN_AFTER {
            let error = match self.run_once(link, keys, arguments).await {
                Err(error) if is_lost(&error) || (lost.is_some() && is_away(&error)) => error,
                // After a timeout there is no retry: the caller has waited long enough.
                answer => return answer,
            };
            lost.get_or_insert(error);
            // The lost call may still be in flight.
            if let Some(call) = arguments.last_mut().filter(|call| self.changes && call.len() == 8) {
                call.push(DOUBT);
            }
            tokio::time::sleep(pause).await;
        }
        match (self.run_once(link, keys, arguments).await, lost) {
            (Err(error), Some(lost)) if is_lost(&error) || is_away(&error) => Err(lost),
            (answer, _) => answer,
        }
    }

    /// Sends the call once.
    ///
    /// An error after which it may have been executed counts as a lost reply. The client of a cluster may return to a
    /// call the error of another call: [`Link::send`].
    async fn run_once<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> RedisResult<T> {
        let may_be_done = self.changes && link.address().kind() == AddressKind::Cluster;
        let answer = self.run(link, keys, arguments).await;
        answer.map_err(|error| if may_be_done { of_cluster(error) } else { error })
    }

    async fn run<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> RedisResult<T> {
        let by_digest = self.command("EVALSHA", &self.sha1, keys, arguments);
        match link.ask(&by_digest).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.ask(&self.command("EVAL", &self.code, keys, arguments)).await
            }
            answer => answer,
        }
    }

    fn command(&self, name: &str, script: &str, keys: &[String], arguments: &[Vec<u8>]) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
        command
    }
}

/// The delays before the retries of a call whose reply was lost.
const AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(5), Duration::from_millis(50), Duration::from_millis(200)];

/// An error of a cluster without a server's reply may belong to another call, so it is treated as a lost connection.
fn of_cluster(error: RedisError) -> RedisError {
    match error.code().is_none() && !error.is_timeout() {
        true => (ErrorKind::Io, "a node of the cluster was lost", error.to_string()).into(),
        false => error,
    }
}

/// Whether a command may have been executed, and its reply was lost with the connection.
fn is_lost(error: &RedisError) -> bool {
    !error.is_timeout()
        && !error.is_connection_refusal()
        && (error.is_connection_dropped() || error.is_io_error())
}

/// Whether the server cannot be reached, so that the outcome of an earlier call stays unknown.
fn is_away(error: &RedisError) -> bool {
    error.is_connection_refusal() || matches!(Error::of("", error), Error::Unavailable { .. })
}

/// A random id of this process.
static PROCESS: LazyLock<u64> = LazyLock::new(random);
/// The number of the next call.
static CALLS: AtomicU64 = AtomicU64::new(1);
/// Follows the number of a call: an earlier one of its lane may still be in flight.
const DOUBT: u8 = b'!';
/// The maximum number of such lanes that are remembered.
const DOUBTFUL: usize = 1_024;
static LANES: LazyLock<Mutex<CallerPool>> = LazyLock::new(Mutex::default);

/// The idle lanes, and the number of lanes: the maximum number of concurrent calls so far.
#[derive(Default)]
struct CallerPool {
    free: Vec<u32>,
    /// Lanes with a call that may still be in flight, with the queue and Redis it was sent to.
    ///
    /// The next calls on that queue use them.
    doubtful: Vec<(u32, String)>,
    made: u32,
}

/// A lane in exclusive use by one call.
struct NumberedCaller<'a> {
    number: u32,
    link: &'a Link,
    of: &'a Keys,
    /// Whether an earlier call of this lane, or this one, may still be in flight.
    is_doubtful: bool,
    /// Whether the outcome of the call is known.
    has_ended: bool,
}

impl<'a> NumberedCaller<'a> {
    fn enter(link: &'a Link, of: &'a Keys) -> NumberedCaller<'a> {
        let mut lanes = lanes();
        let doubtful = match lanes.doubtful.is_empty() {
            true => None,
            false => {
                let place = place(link, of);
                lanes.doubtful.iter().position(|(_, other)| *other == place)
            }
        };
        let number = match doubtful {
            Some(index) => lanes.doubtful.swap_remove(index).0,
            None => lanes.free.pop().unwrap_or_else(|| {
                lanes.made += 1;
                lanes.made
            }),
        };
        NumberedCaller { number, link, of, is_doubtful: doubtful.is_some(), has_ended: false }
    }

    fn name(&self) -> String {
        let mut name = format!("{:016x}", *PROCESS);
        write!(name, "{:x}", self.number).expect("a string takes all");
        name
    }
}

impl Drop for NumberedCaller<'_> {
    fn drop(&mut self) {
        let mut lanes = lanes();
        if (self.is_doubtful || !self.has_ended) && lanes.doubtful.len() < DOUBTFUL {
            lanes.doubtful.push((self.number, place(self.link, self.of)));
        } else {
            lanes.free.push(self.number);
        }
    }
}

/// Identifies a queue and its Redis.
fn place(link: &Link, of: &Keys) -> String {
    format!("{} {}", link.address(), of.answer(""))
}

fn lanes() -> MutexGuard<'static, CallerPool> {
    LANES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 64 random bits, from the source that seeds hash maps.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The maximum size of elements and payloads that one script reads in bytes, not counting the first one: a Redis on a
/// slow core needs about 20 ns per byte for these scripts.
pub(crate) const MOST_BYTES: usize = 100_000;

/// An argument in decimal.
pub(crate) fn decimal(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

macro_rules! scripts {
    ($($name:ident $kind:ident: $($file:literal)+;)+) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[$(include_str!(concat!("lua/", $file, ".lua"))),+], stringify!($kind) == "changes")
        });)+

        /// All scripts, by name.
        #[cfg(test)]
        pub(crate) fn all() -> Vec<(&'static str, &'static Script)> {
            vec![$((stringify!($name), &*$name)),+]
        }
    };
}

scripts! {
    OFFER changes: "offer";
    OFFER_AS changes: "element" "layout" "offer_as";
    CANCEL_AS changes: "element" "layout" "cancel_as";
    DEBOUNCE changes: "element" "layout" "some" "place" "debounce";
    SURPLUS changes: "element" "layout" "surplus";
    FIND reads: "element" "some" "place" "find";
    TAKE_OUT changes: "take_out";
    TAKE changes: "take";
    CLEAR changes: "clear";
    MOVE changes: "element" "some" "move";
    MEND changes: "element" "layout" "some" "place" "mend";
    CLAIM changes: "some" "claim_common" "claim";
    REAP changes: "claim_common" "reap";
    SETTLE changes: "claim_common" "settle";
    REVIVE changes: "some" "revive";
    FIX changes: "fix";
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, RedisError};

    use super::super::error::Error;
    use super::{all, is_lost, of_cluster};

    #[test]
    fn what_no_server_of_a_cluster_has_answered_may_have_been_done() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        for error in [
            RedisError::from((ErrorKind::ClusterConnectionNotFound, "no connection found")),
            RedisError::from((ErrorKind::Client, "the cluster could not be refreshed")),
            RedisError::from(refused()),
        ] {
            let error = of_cluster(error);
            assert!(is_lost(&error), "{error}");
            assert!(matches!(Error::of("", &error), Error::OutcomeUnknown { .. }), "{error}");
        }
        let said = redis::parse_redis_value(b"-TRYAGAIN Multiple keys request\r\n").unwrap();
        let error = of_cluster(said.extract_error().unwrap_err());
        assert!(!is_lost(&error) && matches!(Error::of("", &error), Error::Unavailable { .. }), "{error}");
    }

    #[test]
    fn every_script_says_its_keys_its_reply_and_its_cost() {
        for (name, script) in all() {
            for part in ["-- KEYS", "-- reply", "-- cost"] {
                assert!(script.code.contains(part), "{name} says no '{part}'");
            }
            assert_eq!(script.sha1.len(), 40, "{name}");
        }
    }

    #[test]
    fn every_script_that_writes_is_answered_from_what_was_kept_when_it_is_repeated() {
        for (name, script) in all() {
            assert_eq!(script.code.contains("keep("), script.changes, "{name}");
            assert_eq!(script.code.contains("if repeated") || name == "OFFER", script.changes, "{name}");
        }
    }
}
