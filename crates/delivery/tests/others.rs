//! Other people's code beside ours: the instants of Quartz's and Spring's own classes, and webhooks verified by PyPI's
//! `standardwebhooks`.
//!
//! They need Java and Python, and are ignored unless requested: `scripts/test delivery`.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dwell_delivery::schedule::{Dialect, Schedule, Times};
use dwell_delivery::sinks::webhook::{Secret, Webhook};
use dwell_delivery::{Outcome, Worker};
use dwell_model::{Limits, StateKind, Timestamp};
use dwell_store::{MemoryStore, Queue, Store, Take};
use dwell_testkit::process::{KilledOnDrop, run_with};
use dwell_time::SystemClock;

fn interop(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop").join(path)
}

/// The lines of a file without its comments.
fn lines(path: &str) -> Vec<String> {
    let path = interop(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
}

/// An expression of the file.
struct Asked<'a> {
    dialect: Dialect,
    after: Timestamp,
    zone: &'a str,
    expression: &'a str,
}

impl Asked<'_> {
    fn of(line: &str) -> Asked<'_> {
        let [dialect, after, zone, expression] =
            line.splitn(4, ' ').collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("{line}"));
        let dialect = match dialect {
            "quartz" => Dialect::Quartz,
            "spring" => Dialect::Spring,
            other => panic!("{other}"),
        };
        Asked { dialect, after: after.parse().unwrap(), zone, expression }
    }

    /// Our instants, in seconds.
    fn ours(&self, count: usize) -> Vec<i64> {
        let times = Times::cron(self.expression, Some(self.dialect), self.zone);
        let times = times.unwrap_or_else(|error| panic!("{}: {error}", self.expression));
        let next = Schedule::new("s", "q", times).unwrap().next(self.after, count);
        next.into_iter().map(|at| at.as_ms() / 1_000).collect()
    }
}

/// 2100-01-01: Quartz does not look further than a hundred years ahead.
const HORIZON_S: i64 = 4_102_444_800;

/// What one of two lists has and the other has not, as far as both go.
fn differences(theirs: &[i64], ours: &[i64], count: usize) -> Vec<String> {
    // A list that is full continues behind its last instant.
    let end = |list: &[i64]| list.last().copied().filter(|_| list.len() == count).unwrap_or(i64::MAX);
    let end = end(theirs).min(end(ours)).min(HORIZON_S);
    let within = |list: &[i64]| list.iter().copied().filter(|at| *at <= end).collect::<BTreeSet<i64>>();
    let (theirs, ours) = (within(theirs), within(ours));
    let text = |sign: char, at: &i64| {
        let at = Timestamp::from_ms(at * 1_000).unwrap().to_string();
        format!("{sign}{}", at.replace(".000Z", "Z"))
    };
    let missing = theirs.difference(&ours).map(|at| (at, text('-', at)));
    let added = ours.difference(&theirs).map(|at| (at, text('+', at)));
    let mut all: Vec<_> = missing.chain(added).collect();
    all.sort();
    all.into_iter().map(|(_, text)| text).collect()
}

/// 200 expressions and more: the next 50 instants of each are those of Quartz's and Spring's classes, except for the
/// listed differences at changes of the clock.
#[test]
#[ignore = "needs Java: scripts/test delivery"]
fn quartz_and_spring_agree() {
    const COUNT: usize = 50;
    let classes = interop("cron/target/classes");
    assert!(
        classes.join("dwell/interop/Instants.class").is_file() && interop("cron/target/lib").is_dir(),
        "the Java side is not built: mvn -q -B -f interop/cron package"
    );
    let expressions = lines("cron/expressions.txt");
    assert!(expressions.len() >= 200, "{}", expressions.len());
    let path = format!("{}:{}/*", classes.display(), interop("cron/target/lib").display());
    let mut java = Command::new("java");
    java.args([
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        &path,
        "dwell.interop.Instants",
    ]);
    let theirs = run_with(java, (expressions.join("\n") + "\n").as_bytes()).ok().stdout;
    assert_eq!(theirs.lines().count(), expressions.len());

    let mut found = BTreeMap::new();
    let mut compared = 0;
    for (line, theirs) in expressions.iter().zip(theirs.lines()) {
        let asked = Asked::of(line);
        let theirs: Vec<i64> = theirs.split_whitespace().map(|at| at.parse().unwrap()).collect();
        assert!(!theirs.is_empty(), "{line}");
        compared += theirs.len();
        let differences = differences(&theirs, &asked.ours(COUNT), COUNT);
        if !differences.is_empty() {
            found.insert(line.clone(), differences.join(" "));
        }
    }
    let listed: BTreeMap<String, String> = lines("cron/differences.txt")
        .iter()
        .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{line}")))
        .map(|(name, differences)| (name.to_owned(), differences.to_owned()))
        .collect();
    let unlisted: Vec<String> = found
        .iter()
        .filter(|(name, differences)| listed.get(*name) != Some(*differences))
        .map(|(name, differences)| format!("{name}: {differences}"))
        .collect();
    let vain: Vec<&String> = listed.keys().filter(|name| !found.contains_key(*name)).collect();
    assert!(
        unlisted.is_empty() && vain.is_empty(),
        "not listed in interop/cron/differences.txt:\n{}\nlisted without being so: {vain:#?}",
        unlisted.join("\n")
    );
    println!("{} expressions, {compared} instants, {} with differences", expressions.len(), found.len());
}

/// The sink signs what `standardwebhooks` verifies, for each of several secrets, and it verifies nothing else.
#[tokio::test]
#[ignore = "needs Python with standardwebhooks: scripts/test delivery"]
async fn standardwebhooks_verifies_what_the_sink_signs() {
    const SECRETS: [&str; 2] =
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_b2xkLXNlY3JldC1vZi1mb3J0eS1ieXRlcy1pbi1hbGwtLi4u"];
    let python =
        std::env::var("DWELL_PYTHON").expect("DWELL_PYTHON names a Python that has standardwebhooks");
    let mut command = Command::new(python);
    command.arg(interop("webhook/receiver.py")).args(SECRETS).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut receiver = KilledOnDrop(command.spawn().unwrap());
    let mut port = String::new();
    BufReader::new(receiver.0.stdout.take().unwrap()).read_line(&mut port).unwrap();

    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let queue = Queue::new(Arc::clone(&store), "q").unwrap();
    let long = "é€ ".repeat(100_000);
    for body in ["", "{\"order\": 7}", " {}\r\n", "Größe 5 € \u{0}\u{1F4A1}", &long] {
        queue.put(body).await.unwrap();
    }
    let secrets = SECRETS.map(|secret| Secret::parse(secret).unwrap());
    let url = format!("http://127.0.0.1:{}/hook", port.trim());
    let webhook = Webhook::to(&url).secrets(secrets.clone()).build().unwrap();
    let worker = Worker::new(Arc::clone(&store)).lane(webhook.lane("q"));
    let stats = worker.stats().remove(0);
    let settled = async {
        while stats.done() + stats.buried() + stats.retried() < 5 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), worker.run_until(settled)).await.unwrap().unwrap();
    assert_eq!((stats.done(), stats.buried(), stats.retried()), (5, 0, 0), "{:?}", dead(&queue).await);

    // The receiver asks for both: one alone is refused.
    queue.put("one").await.unwrap();
    let delivery = store.take(Take::from("q".parse().unwrap())).await.unwrap().remove(0);
    let one = Webhook::to(&url).secrets(secrets.into_iter().take(1)).build().unwrap();
    match one.deliver(&delivery).await {
        Outcome::Bury { reason } => assert!(reason.contains("secret 1 does not verify it"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

/// The errors of the queue's dead messages.
async fn dead(queue: &Queue) -> Vec<Option<Arc<str>>> {
    let page = queue.list(StateKind::Dead, None, 10).await.unwrap();
    page.messages.into_iter().map(|message| message.standing.last_error).collect()
}
