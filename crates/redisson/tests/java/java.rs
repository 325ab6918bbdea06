//! A Java process for each release of Redisson, started once per run and driven by lines of JSON.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use dwell_redisson::Layout;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

/// A release of Redisson.
pub(crate) struct Java {
    /// The name of its folder in `interop/redisson`.
    pub(crate) release: &'static str,
    next: AtomicU64,
    line: Mutex<ChildStdin>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>,
    // It exits when its standard input is closed, which happens when this process ends.
    _process: Child,
}

/// 3.17.7, the old layout.
pub(crate) static OLD: LazyLock<Java> = LazyLock::new(|| Java::start("3.17"));
/// 3.45.1.
pub(crate) static MIDDLE: LazyLock<Java> = LazyLock::new(|| Java::start("3.45"));
/// 4.7.0.
pub(crate) static NEW: LazyLock<Java> = LazyLock::new(|| Java::start("4.7"));

/// The releases that write the new layout.
pub(crate) fn new_ones() -> [&'static Java; 2] {
    [&MIDDLE, &NEW]
}

/// All releases.
pub(crate) fn all() -> [&'static Java; 3] {
    [&OLD, &MIDDLE, &NEW]
}

/// An upper bound for the time of a request.
const PATIENCE: Duration = Duration::from_secs(60);

impl Java {
    fn start(release: &'static str) -> Java {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../interop/redisson").join(release);
        let classes = folder.join("target/classes");
        assert!(
            classes.join("dwell/interop/Driver.class").is_file() && folder.join("target/lib").is_dir(),
            "the Java side is not built: mvn -q -B -f interop/redisson package"
        );
        let path = format!("{}:{}/target/lib/*", classes.display(), folder.display());
        let mut process = Command::new("java")
            .args([
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-cp",
                &path,
                "dwell.interop.Driver",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("java cannot be started ({error}): apt-get install default-jdk-headless")
            });
        let line = process.stdin.take().expect("it is piped");
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>> = Arc::default();
        let waiters = Arc::clone(&waiting);
        std::thread::spawn(move || {
            for answer in answers.lines().map_while(Result::ok) {
                let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
                let id = answer["id"].as_u64().expect("an answer has an id");
                if let Some(waiter) = locked(&waiters).remove(&id) {
                    // The caller may have given up.
                    let _ = waiter.send(answer);
                }
            }
            locked(&waiters).clear();
        });
        Java { release, next: AtomicU64::new(1), line: Mutex::new(line), waiting, _process: process }
    }

    /// The layout that it writes, and the only one that it reads.
    pub(crate) fn layout(&self) -> Layout {
        if self.release == "3.17" { Layout::Old } else { Layout::New }
    }

    /// Sends a request, and awaits the reply.
    pub(crate) async fn ask(&self, mut request: Value) -> Result<Value, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        request["id"] = id.into();
        let (answer, answered) = oneshot::channel();
        locked(&self.waiting).insert(id, answer);
        writeln!(locked(&self.line), "{request}").expect("the Java process reads");
        let within = tokio::time::timeout(PATIENCE, answered).await;
        let answer = within.unwrap_or_else(|_| panic!("{}: no answer in time to {request}", self.release));
        let mut answer = answer.unwrap_or_else(|_| panic!("{}: Java ended during {request}", self.release));
        match answer["error"].take() {
            Value::Null => Ok(answer["ok"].take()),
            error => Err(error.as_str().unwrap_or_default().to_owned()),
        }
    }

    /// Connects a Redisson client of this release to the server at `port`.
    pub(crate) async fn connect(&'static self, port: u16, prefix: &str) -> Client {
        static NAMES: AtomicU64 = AtomicU64::new(1);
        let name = NAMES.fetch_add(1, Ordering::Relaxed).to_string();
        let address = format!("redis://127.0.0.1:{port}");
        let request = json!({"do": "connect", "client": name, "address": address, "prefix": prefix});
        self.ask(request).await.expect("a client connects");
        Client { java: self, name }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with it")
}

/// One Redisson client.
pub(crate) struct Client {
    pub(crate) java: &'static Java,
    name: String,
}

impl Client {
    /// Sends a request on a queue to this client.
    pub(crate) async fn on(
        &self,
        queue: &str,
        codec: &str,
        what: &str,
        arguments: Value,
    ) -> Result<Value, String> {
        let mut request = Map::from_iter([
            ("do".to_owned(), what.into()),
            ("client".to_owned(), self.name.clone().into()),
            ("queue".to_owned(), queue.into()),
            ("codec".to_owned(), codec.into()),
        ]);
        if let Value::Object(arguments) = arguments {
            request.extend(arguments);
        }
        self.java.ask(Value::Object(request)).await
    }

    /// The queue of strings with this name.
    pub(crate) fn queue<'a>(&'a self, queue: &'a str) -> Queue<'a> {
        Queue { client: self, queue, codec: "string" }
    }

    /// Closes it, with its delayed queues and their transfer tasks.
    pub(crate) async fn shutdown(self) {
        self.java.ask(json!({"do": "shutdown", "client": self.name})).await.expect("a client closes");
    }
}

/// A queue of one client.
#[derive(Clone, Copy)]
pub(crate) struct Queue<'a> {
    client: &'a Client,
    queue: &'a str,
    codec: &'a str,
}

impl<'a> Queue<'a> {
    pub(crate) fn with_codec(self, codec: &'a str) -> Queue<'a> {
        Queue { codec, ..self }
    }

    pub(crate) async fn ask(&self, what: &str, arguments: Value) -> Value {
        let answer = self.client.on(self.queue, self.codec, what, arguments).await;
        answer.unwrap_or_else(|error| panic!("{} {what}: {error}", self.client.java.release))
    }

    /// Opens the delayed queue: from now on this client moves due elements.
    pub(crate) async fn open(&self) {
        self.ask("open", json!({})).await;
    }

    pub(crate) async fn offer(&self, values: impl Into<Value>, delay_ms: u64) {
        self.ask("offer", json!({"values": values.into(), "delay_ms": delay_ms})).await;
    }

    pub(crate) async fn remove(&self, value: impl Into<Value>) -> bool {
        self.ask("remove", json!({"value": value.into()})).await == true
    }

    pub(crate) async fn contains(&self, value: impl Into<Value>) -> bool {
        self.ask("contains", json!({"value": value.into()})).await == true
    }

    pub(crate) async fn debounce(&self, value: impl Into<Value>, delay_ms: u64) -> bool {
        self.ask("debounce", json!({"value": value.into(), "delay_ms": delay_ms})).await == true
    }

    pub(crate) async fn size(&self) -> u64 {
        self.ask("size", json!({})).await.as_u64().expect("a size is a number")
    }

    pub(crate) async fn read_all(&self) -> Value {
        self.ask("read_all", json!({})).await
    }

    /// Takes from the destination, which starts no transfer task.
    pub(crate) async fn take(&self, wait_ms: u64) -> Value {
        self.ask("take", json!({"wait_ms": wait_ms})).await
    }

    /// Takes until `count` values have come, or none came for `idle_ms`.
    pub(crate) async fn collect(&self, count: usize, idle_ms: u64) -> Vec<String> {
        let taken = self.ask("collect", json!({"count": count, "idle_ms": idle_ms})).await;
        let taken = taken.as_array().cloned().expect("a list was collected");
        taken.into_iter().map(|value| value.as_str().expect("strings").to_owned()).collect()
    }

    /// Ends this client's transfer task.
    pub(crate) async fn destroy(&self) {
        self.ask("destroy", json!({})).await;
    }
}
