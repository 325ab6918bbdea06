//! Clients of beanstalkd's protocol that would exceed the limit on bodies: those that announce much and send none of
//! it, and those that request much and read none of it. Others put and take large jobs meanwhile.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use dwell_model::Wake;
use dwell_time::{Clock as _, SystemClock};

use crate::common::crowd::{connect, most_resident_kib, raise_limit, resident_kib};
use crate::common::{PATIENCE, Server, dwell};

/// The maximum of requests and answers that the server may hold.
const BODIES_KIB: usize = 8 << 10;
const JOB: usize = 1 << 20;

/// Together they announce 65 times as much as that.
const ANNOUNCE: usize = 520;
/// Together they request 80 times as much, of which a part is in the sockets' buffers.
const UNREAD: usize = 16;
const ASKED_BY_ONE: usize = 40;

/// These, the well-behaved ones, and those that reconnect.
const CONNECTIONS: usize = ANNOUNCE + 4 * UNREAD;

/// The number of jobs that each well-behaved client puts and takes, over connections that it keeps.
const ROUNDS: usize = 5;

/// Beyond the limit: for each client that does not read, an answer that was requested before the limit was reached;
/// some for each connection; and the store's memory.
const ALLOWED_KIB: u64 =
    (BODIES_KIB + 2 * UNREAD * (JOB >> 10) + (ANNOUNCE + UNREAD) * 128 + (64 << 10)) as u64;

#[test]
fn who_would_hold_more_than_there_may_be_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = dwell();
    command.arg("serve").arg("--data").arg(folder.path());
    command.args(["--listen", "127.0.0.1:0", "--beanstalkd", "127.0.0.1:0", "--max-bodies"]);
    command.arg(format!("{BODIES_KIB}KiB"));
    // Timeouts are off: others would have to wait longer than the test does.
    command.env("DWELL_BEANSTALKD_READ_TIMEOUT", "1h").env("DWELL_BEANSTALKD_WRITE_TIMEOUT", "1h");
    let server = Server::spawn(command);
    let address = server.serving["beanstalkd"].as_str().unwrap().to_owned();
    // No lower than the other test's, which shares the process.
    raise_limit(std::process::id(), crate::IDLE + crate::WAITING + 2 * CONNECTIONS);
    raise_limit(server.pid(), CONNECTIONS);

    let mut first = Client::new(&address, "unread");
    first.put();
    let before_kib = resident_kib(server.pid());
    let announced: Vec<TcpStream> = (0..ANNOUNCE)
        .map(|_| {
            let mut stream = connect(&address);
            stream.write_all(format!("put 0 0 60 {JOB}\r\nx").as_bytes()).unwrap();
            stream
        })
        .collect();
    let unread = Unread::begin(&address);

    let mut client = Client::new(&address, "own");
    let mut told = 0;
    for _ in 0..ROUNDS {
        told += client.put();
        told += client.take();
    }
    // Until they have had an effect.
    let clock = SystemClock::new();
    let (mut sleeper, over_ms) = (clock.sleeper(), clock.now().mono_ms + PATIENCE.as_millis() as u64);
    while unread.cut_off.load(Ordering::Relaxed) == 0 {
        assert!(clock.now().mono_ms < over_ms, "nobody was cut off");
        told += client.put() + client.take();
        let wake_ms = clock.now().mono_ms + 10;
        sleeper.sleep(Wake { wall: None, mono_ms: Some(wake_ms) });
    }
    let cut_off = unread.end();
    let more_kib = most_resident_kib(server.pid()).saturating_sub(before_kib);
    println!("{more_kib} KiB more; {cut_off} cut off; the others got {told} answers to try again");
    assert!(more_kib <= ALLOWED_KIB, "{more_kib} KiB more, and {ALLOWED_KIB} KiB are allowed");
    for stream in announced {
        assert!(is_open(&stream), "who has begun a command may finish it");
    }
}

/// Whether a connection on which nothing was sent is open.
pub(crate) fn is_open(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// A client that retries transient refusals.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn new(address: &str, tube: &str) -> Client {
        let stream = connect(address);
        let mut client = Client { reader: BufReader::new(stream.try_clone().unwrap()), stream };
        client.ask(format!("use {tube}\r\n").as_bytes());
        client.ask(format!("watch {tube}\r\n").as_bytes());
        client.ask(b"ignore default\r\n");
        client
    }

    fn ask(&mut self, command: &[u8]) -> String {
        self.stream.write_all(command).unwrap();
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("an answer in time");
        line
    }

    /// Puts a large job; returns the number of retries.
    fn put(&mut self) -> usize {
        let put = [format!("put 0 0 3600 {JOB}\r\n").as_bytes(), &b"x".repeat(JOB), b"\r\n"].concat();
        let mut again = 0;
        loop {
            let line = self.ask(&put);
            if line.starts_with("INSERTED ") {
                return again;
            }
            assert_eq!(line, "OUT_OF_MEMORY\r\n");
            again += 1;
        }
    }

    /// Takes and deletes one; returns the number of retries.
    fn take(&mut self) -> usize {
        let mut again = 0;
        loop {
            let line = self.ask(b"reserve-with-timeout 5\r\n");
            if let Some(job) = line.strip_prefix("RESERVED ") {
                self.reader.read_exact(&mut vec![0; JOB + 2]).unwrap();
                let number = job.split(' ').next().unwrap();
                assert_eq!(self.ask(format!("delete {number}\r\n").as_bytes()), "DELETED\r\n");
                return again;
            }
            assert_eq!(line, "TIMED_OUT\r\n");
            again += 1;
        }
    }
}

/// Threads of clients that send requests and do not read; those that are disconnected reconnect.
struct Unread {
    over: Arc<AtomicBool>,
    cut_off: Arc<AtomicUsize>,
    thread: thread::JoinHandle<()>,
}

impl Unread {
    /// The interval of checks for disconnected clients.
    const EVERY_MS: u64 = 50;

    fn begin(address: &str) -> Unread {
        let (over, cut_off) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (address, ends, count) = (address.to_owned(), Arc::clone(&over), Arc::clone(&cut_off));
        let asks = move || {
            let mut stream = connect(&address);
            let asked = format!("use unread\r\n{}", "peek-ready\r\n".repeat(ASKED_BY_ONE));
            stream.write_all(asked.as_bytes()).unwrap();
            stream
        };
        let mut streams: Vec<TcpStream> = (0..UNREAD).map(|_| asks()).collect();
        let thread = thread::spawn(move || {
            let clock = SystemClock::new();
            let mut sleeper = clock.sleeper();
            while !ends.load(Ordering::Relaxed) {
                for stream in &mut streams {
                    // A connection that was reset reports it once.
                    if stream.take_error().unwrap().is_some() || stream.write_all(b"peek-ready\r\n").is_err()
                    {
                        count.fetch_add(1, Ordering::Relaxed);
                        *stream = asks();
                    }
                }
                let wake_ms = clock.now().mono_ms + Unread::EVERY_MS;
                sleeper.sleep(Wake { wall: None, mono_ms: Some(wake_ms) });
            }
        });
        Unread { over, cut_off, thread }
    }

    /// The number of clients that were disconnected.
    fn end(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.cut_off.load(Ordering::Relaxed)
    }
}
