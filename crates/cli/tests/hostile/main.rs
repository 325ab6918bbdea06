//! Hostile clients over both protocols at once, with ten thousand idle ones and two thousand that wait in a reserve:
//! the server's memory, and the lateness of messages meanwhile, stay within the limits below.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails by panicking")]

mod attack;
#[path = "../common/mod.rs"]
mod common;
mod overload;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use dwell_client::Client;
use dwell_model::{QueueName, Timestamp, Wake};
use dwell_store::{Action, Put, Settle, Take};
use dwell_time::{Clock as _, SystemClock};

use attack::{Attack, Attacker, Protocol};
use common::crowd::{connect, most_resident_kib, raise_limit, resident_kib, waiting};
use common::{PATIENCE, Server, serve_with, until};

const IDLE: usize = 10_000;
const WAITING: usize = 2_000;

/// The maximum of requests and answers that the server may hold (`limits.bodies`). The attacks below hold less;
/// `overload` exceeds it.
const BODIES_KIB: u64 = 128 << 10;
/// The maximum memory of an idle connection, a waiting one, and an attacking one beyond that.
const IDLE_KIB: u64 = 8;
const WAITING_KIB: u64 = 24;
const ATTACKER_KIB: u64 = 128;
/// The server's memory for the messages themselves: puts, their journal, its caches.
const STORE_KIB: u64 = 32 << 10;

/// The number of messages that well-behaved clients take from each of two queues, due at a fixed interval.
const MESSAGES: usize = 200;
const EVERY_MS: i64 = 10;
/// The delay of the first message after the puts began.
const LEAD_MS: i64 = 800;

/// The maximum lateness at these quantiles, as a multiple of that without the crowd, or, since that is almost zero, in
/// milliseconds. Not of all messages: a busy machine stops a process for a tenth of a second now and then, and makes
/// all messages late that fall due meanwhile, one every 10 ms; a tenth of them is two such stops in two seconds, and
/// their backlog is worked off one sync at a time. A server that lets attackers delay others is late with every
/// message, by any amount.
const TIMES_AS_LATE: i64 = 10;
const LATEST_MS: [(f64, i64); 2] = [(0.5, 250), (0.9, 1_000)];

/// Large bodies for clients that do not read what they took.
const LARGE: usize = 32;
const LARGE_BYTES: usize = 1 << 20;

#[test]
fn hostile_clients_cost_little_and_delay_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let bodies = format!("{BODIES_KIB}KiB");
    let args = ["--listen", "127.0.0.1:0", "--beanstalkd", "127.0.0.1:0", "--max-bodies", &bodies];
    let server = serve_with(folder.path(), &args);
    let beanstalkd = server.serving["beanstalkd"].as_str().unwrap().to_owned();
    let client = Client::new(server.url()).unwrap().blocking();

    let attackers: Vec<Attacker> = Attack::ALL
        .into_iter()
        .flat_map(|(attack, count)| (0..count).map(move |at| (attack, at)))
        .flat_map(|(attack, at)| {
            [(Protocol::Http, server.address()), (Protocol::Beanstalkd, &beanstalkd)]
                .map(|(protocol, address)| Attacker::new(attack, protocol, address.to_owned(), at))
        })
        .collect();
    let wanted = IDLE + WAITING + attackers.len();
    let files = raise_limit(std::process::id(), wanted).min(raise_limit(server.pid(), wanted));
    // If the limit on files is lower, there are fewer of each in proportion.
    let share = |count: usize| count * files.saturating_sub(1_000).min(IDLE + WAITING) / (IDLE + WAITING);
    let (idle, waits) = (share(IDLE), share(WAITING));

    let large: QueueName = attack::LARGE.parse().unwrap();
    for _ in 0..LARGE {
        client.put_one(Put::new(large.clone(), vec![b'x'; LARGE_BYTES])).unwrap();
    }
    let alone = latenesses(&server, &beanstalkd, "alone");
    let before_kib = resident_kib(server.pid());

    let mut held = Vec::with_capacity(idle + waits);
    for at in 0..idle {
        held.push(connect(if at % 2 == 0 { server.address() } else { &beanstalkd }));
    }
    for at in 0..waits {
        let mut stream = connect(&beanstalkd);
        stream.write_all(format!("watch nothing-{}\r\nreserve\r\n", at % 50).as_bytes()).unwrap();
        held.push(stream);
    }
    // Each waits on its own tube and on `default`, and counts in both.
    until("all of them wait", || waiting(&server) >= 2 * waits);

    let attacking = Attacking::begin(attackers);
    let crowded = latenesses(&server, &beanstalkd, "crowded");
    let attackers = attacking.end();
    let more_kib = most_resident_kib(server.pid()).saturating_sub(before_kib);

    println!("{idle} idle, {waits} waiting: {more_kib} KiB more");
    for (protocol, attack, told) in attack::summary(&attackers) {
        println!("{protocol:?}, {attack:?}: {told:?}");
        attack.assert_went_on(protocol, told);
    }
    let allowed_kib = BODIES_KIB
        + STORE_KIB
        + idle as u64 * IDLE_KIB
        + waits as u64 * WAITING_KIB
        + attackers.len() as u64 * ATTACKER_KIB;
    assert!(more_kib <= allowed_kib, "{more_kib} KiB more, and {allowed_kib} KiB are allowed");
    for (what, alone, crowded) in [
        ("HTTP", &alone.http, &crowded.http),
        ("beanstalkd's protocol", &alone.beanstalkd, &crowded.beanstalkd),
    ] {
        for (quantile, latest_ms) in LATEST_MS {
            let [alone_ms, crowded_ms] =
                [alone, crowded].map(|late| late[(late.len() as f64 * quantile) as usize]);
            println!("{what}: {quantile} of all within {crowded_ms} ms, alone {alone_ms} ms");
            let most_ms = (TIMES_AS_LATE * alone_ms).max(latest_ms);
            assert!(crowded_ms <= most_ms, "{what}: {crowded_ms} ms late, {alone_ms} ms alone");
        }
    }

    // Half a message is never put, whichever client sent it.
    drop(attackers);
    let half = attack::HALF.parse().unwrap();
    let put = client.stats(half).map_or(0, |stats| stats.counts.ready + stats.counts.scheduled);
    assert_eq!(put, 0, "half a message is none");
    // The idle clients are still connected, and the waiting ones are served.
    assert!(held[..idle].iter().all(overload::is_open), "an idle connection was closed");
    drop(held.drain(..idle));
    client.put_one(Put::new("nothing-0".parse().unwrap(), "x")).unwrap();
    let mut answer = [0; 21];
    held[0].read_exact(&mut answer).unwrap();
    assert_eq!(&answer[..21], b"WATCHING 2\r\nRESERVED ");
}

/// The lateness of messages on arrival at well-behaved clients, in milliseconds, in rising order.
struct Latenesses {
    http: Vec<i64>,
    beanstalkd: Vec<i64>,
}

fn now_ms() -> i64 {
    SystemClock::new().now().wall.as_ms()
}

/// Puts messages due at known instants into a queue for each protocol, and takes them as they fall due.
fn latenesses(server: &Server, beanstalkd: &str, name: &str) -> Latenesses {
    let queues = ["http", "beanstalkd"].map(|protocol| format!("{protocol}-{name}"));
    let [to_http, to_beanstalkd] = queues.clone();
    let (url, address) = (server.url().to_owned(), beanstalkd.to_owned());
    let (sender, from_http) = channel();
    thread::spawn(move || sender.send(take_over_http(&url, &to_http)));
    let (sender, from_beanstalkd) = channel();
    thread::spawn(move || sender.send(take_over_beanstalkd(&address, &to_beanstalkd)));

    let first_ms = now_ms() + LEAD_MS;
    let puts: Vec<Put> = (0..MESSAGES)
        .flat_map(|at| queues.iter().map(move |queue| (first_ms + at as i64 * EVERY_MS, queue)))
        // The body contains the due instant: beanstalkd's protocol has no field for that.
        .map(|(due_ms, queue)| {
            Put::new(queue.parse().unwrap(), due_ms.to_string()).at(Timestamp::from_ms(due_ms).unwrap())
        })
        .collect();
    for answer in Client::new(server.url()).unwrap().blocking().put(puts) {
        answer.unwrap();
    }
    let sorted = |mut late: Vec<i64>| {
        late.sort_unstable();
        assert!(late[0] >= 0, "a message came {} ms before its instant", -late[0]);
        late
    };
    Latenesses {
        http: sorted(from_http.recv_timeout(PATIENCE).expect("all come over HTTP")),
        beanstalkd: sorted(
            from_beanstalkd.recv_timeout(PATIENCE).expect("all come over beanstalkd's protocol"),
        ),
    }
}

fn take_over_http(url: &str, queue: &str) -> Vec<i64> {
    let client = Client::new(url).unwrap().blocking();
    let take = Take::from(queue.parse::<QueueName>().unwrap()).max(16).wait_ms(30_000);
    let mut late = Vec::new();
    while late.len() < MESSAGES {
        let taken = client.take(take.clone()).unwrap();
        let now_ms = now_ms();
        for delivery in taken {
            let late_ms = now_ms - delivery.message.standing.due.as_ms();
            // The server's lateness begins at the later of due instant and put, and ends at the take.
            assert!(delivery.lateness_ms as i64 <= late_ms, "{delivery:?} was {late_ms} ms late");
            late.push(late_ms);
            client.settle_one(Settle { receipt: delivery.receipt, action: Action::Ack }).unwrap();
        }
    }
    late
}

fn take_over_beanstalkd(address: &str, tube: &str) -> Vec<i64> {
    let mut stream = connect(address);
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = move || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };
    stream.write_all(format!("watch {tube}\r\nignore default\r\n").as_bytes()).unwrap();
    assert_eq!((line().as_str(), line().as_str()), ("WATCHING 2\r\n", "WATCHING 1\r\n"));
    let mut late = Vec::new();
    while late.len() < MESSAGES {
        stream.write_all(b"reserve-with-timeout 30\r\n").unwrap();
        let reserved = line();
        let number =
            reserved.strip_prefix("RESERVED ").expect(&reserved).split(' ').next().unwrap().to_owned();
        let due_ms: i64 = line().trim_end().parse().unwrap();
        late.push(now_ms() - due_ms);
        stream.write_all(format!("delete {number}\r\n").as_bytes()).unwrap();
        assert_eq!(line(), "DELETED\r\n");
    }
    late
}

/// A thread that lets each attacker act, in turns.
struct Attacking {
    over: std::sync::Arc<AtomicBool>,
    attackers: std::sync::mpsc::Receiver<Vec<Attacker>>,
}

impl Attacking {
    /// The interval between turns: the attacks use a part of the machine, not all of it, since the server and the
    /// measured clients run there too.
    const EVERY_MS: u64 = 10;
    /// The minimum number of turns of each.
    const FEWEST_TURNS: usize = 200;

    fn begin(mut attackers: Vec<Attacker>) -> Attacking {
        let over = std::sync::Arc::new(AtomicBool::new(false));
        let (sender, receiver) = channel();
        let ends = std::sync::Arc::clone(&over);
        thread::spawn(move || {
            let clock = SystemClock::new();
            let mut sleeper = clock.sleeper();
            let mut turns = 0;
            while turns < Attacking::FEWEST_TURNS || !ends.load(Ordering::Relaxed) {
                turns += 1;
                attackers.iter_mut().for_each(Attacker::step);
                let wake_ms = clock.now().mono_ms + Attacking::EVERY_MS;
                sleeper.sleep(Wake { wall: None, mono_ms: Some(wake_ms) });
            }
            let _ = sender.send(attackers);
        });
        Attacking { over, attackers: receiver }
    }

    fn end(self) -> Vec<Attacker> {
        self.over.store(true, Ordering::Relaxed);
        self.attackers.recv_timeout(PATIENCE).expect("no attacker waits for the server")
    }
}
