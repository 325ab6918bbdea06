//! Seeds for fuzzers: requests that are almost valid.

use dwell_model::{Cursor, LeaseToken, MessageId, QueueName, Receipt, Timestamp};

/// A seed: its entry point, its name, its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

const QUERIES: &[&str] = &[
    "delay=1h30m&key=a%20b+%C3%A4&on_conflict=keep&priority=7&expires=9999-12-31T23:59:59Z&max_attempts=3&lease=30s",
    "due=2026-11-21T18:00:00.123Z",
    "level=3",
    "queue=a,b&queue=c&max=1000&wait=30s&body=false",
    "after=5s&error=no+luck&priority=0",
    "reason=broken",
    "for=1h&until=2026-11-21T18:00:00Z",
    "oldest=10&delay=5s",
    "all=true&level=1",
    "max_attempts=unlimited",
    "a&=b&&=&x=%FF",
];

const BODIES: &[&str] = &[
    r#"{"queue":"orders","body":"\u00e4 é","delay":"5m","key":"k","on_conflict":"replace","headers":{"a":"b"},"priority":1,"expires":"2027-01-01T00:00:00Z","max_attempts":"unlimited","lease":"30s","idempotency_key":"t"}"#,
    r#"{"queue":"orders","body_base64":"AAEC/w==","delay_ms":5,"max_attempts":3,"lease_ms":18446744073709551615}"#,
    r#"{"body":"x","due":"2026-11-21T18:00:00+01:00"}"#,
    r#"{"body":"x","level":3,"priority":4294967296}"#,
    r#"{"key":"k","delay":"1s"}"#,
    r#"{"ids":["00000000-0005-8001-8000-020000000003"],"due":"1970-01-01T00:00:00Z"}"#,
    r#"{"oldest":3,"all":null}"#,
    r#"{"all":true,"delay_ms":1}"#,
    r#"{"for":"1h"}"#,
    r#"{"until":"9999-12-31T23:59:59.999Z"}"#,
    r#"{"lease":null,"max_attempts":null,"backoff":{"base":"1s","factor_percent":200,"cap_ms":60000,"jitter_percent":20},"max_pending":5,"pause":"paused","levels":["1s","5s"],"partitions":1,"idempotency_ttl_ms":1,"dead_ttl":"7d","dead_max":1000,"on_expiry":"drop","max_leased":5,"lapse_backoff":"second"}"#,
    r#"{"after":"5s","error":"no luck","priority":1}"#,
    r#"{"reason":"broken"}"#,
    r#"[{"id":"x"}]"#,
    r#"{"x":[[[[[[{"y":1e999}]]]]]]}"#,
];

const CONFIGS: &[&str] = &[
    "",
    "[http]\nlisten = \"[::1]:0\"\nhosts = [\"dwell.example\", \"a:80\"]\nmax_connections = 0x10\nbody_rate = 1_024\n",
    "[store]\nurl = \"memory\"\ndata = 'a b'\ndurability = \"interval:100ms\"\nsegment = \"64KiB\"\n[limits]\nbody = \"64MiB\"\n",
    "[beanstalkd]\nlisten = \"off\"\nidle_timeout = \"1h\"\n[shutdown]\ndrain = \"0s\"\n",
    "[defaults]\nlease = \"1m\"\n[queues.orders]\nlevels = [\"1s\", \"5s\"]\nbackoff = { base = \"1s\", cap = \"1m\" }\npause = 2026-11-21T18:00:00Z\n[queues.\"a.b\"]\nmax_attempts = \"unlimited\"\nmax_pending = 5\n",
    "[[tokens]]\nname = \"a\"\nsha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\nscopes = [\"put:orders*\", \"metrics\"]\n[[tokens]]\n",
    "[tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\nclient_ca = \"ca.pem\"\n",
    "[http]\nlisten = \"0.0.0.0:7411\"\ninsecure = false\n",
    "http.listen = 5\nhttp.lisen = \"x\"\nlisten = true\n[queues.a.b]\nlease = 5\n[defaults]\nlease_ms = 5.5\n",
    "a = \"\u{e4}\"\n\"\u{e4}\" = 1\nb = [",
    "[[sinks]]\nname = \"a\"\nqueues = [\"q\"]\nkind = \"webhook\"\nurl = \"https://h.example/x\"\nretry = [\"1s\"]\norder = \"strict\"\n",
    "[[sinks]]\nname = \"b\"\nqueues = [\"r\"]\nkind = \"webhook\"\nurl_header = \"u\"\nhosts = [\"*\"]\nallow = [\"10.0.0.0/8\"]\nsecrets = [\"env:S\"]\n",
    "[[schedules]]\nname = \"s\"\nqueue = \"q\"\ncron = \"0/5 * * * * ?\"\nzone = \"Europe/Berlin\"\nmissed = \"all\"\nheaders = { a = \"b\" }\n",
];

const STREAMS: &[(u8, &[u8], &[u8])] = &[
    (3, &[2, 3], b"a\nbb\n\n \r\nccc"),
    (3, &[1], b"12345\na\n123456789012\nb\n123456"),
    (3, &[4, 1], b"1234\r\n     \n\r\n123\r"),
    (255, &[7], b"{\"body\":\"x\"}\r\n{\"body\":\"y\"}"),
    (0, &[], b"\n\n\na"),
];

/// Seeds of beanstalkd connections: the maximum body length, the piece lengths, the bytes.
const CONNECTIONS: &[(u8, &[u8], &[u8])] = &[
    (
        64,
        &[],
        b"use orders\r\nput 10 0 60 5\r\nhello\r\nwatch orders\r\nignore default\r\nreserve-with-timeout 1\r\ntouch 1\r\n\
          release 1 5 30\r\nkick-job 1\r\nreserve-job 1\r\nbury 1 7\r\nkick 10\r\npeek 1\r\ndelete 1\r\nquit\r\n",
    ),
    (
        64,
        &[9],
        b"peek-ready\r\npeek-delayed\r\npeek-buried\r\nstats\r\nstats-tube a\r\nstats-job 1\r\nlist-tubes\r\n\
          list-tube-used\r\nlist-tubes-watched\r\npause-tube  a  60\r\nreserve\r\nreserve-with-timeout -1\r\n",
    ),
    (3, &[1, 2], b"put 0 0 0 3\r\nab\r\r\nput 1 2 3 4\r\nabcd\r\nput 0 0 0 2\r\nabcd\r\nput 0 0 0 9 x\r\n123456789\r\nquit\r\n"),
    (9, &[5], b"put  4294967295  00  0 0\r\n\r\nput 4294967296 0 0 0\r\ndelete 18446744073709551615\r\ndelete 18446744073709551616\r\n"),
    (9, &[], b"statsx\r\nstats\0\r\nfoo\r\nuse \xff\r\n\xff\r\nuse -a\r\npause-tube a\r\nkick-job \r\n\nquit\n\r\n\r\r\n"),
    (9, &[4], b"stats\r\nPOST / HTTP/1.1\r\nHost: x\r\n\r\nput 0 0 0 1\r\nx\r\n"),
];

/// Some requests of each kind.
pub fn seeds() -> Vec<Seed> {
    let texts = |entry, texts: &[&str]| -> Vec<Seed> {
        let numbered = texts.iter().enumerate();
        numbered.map(|(i, text)| (entry, format!("{i:02}"), text.as_bytes().to_vec())).collect()
    };
    let mut seeds = texts("query", QUERIES);
    seeds.extend(texts("json", BODIES));
    seeds.extend(texts("config", CONFIGS));
    let id = MessageId::new(Timestamp::MIN, 0, 1, 2);
    let queue = QueueName::new("orders").expect("it is a name");
    let receipt = Receipt { queue, id, token: LeaseToken(3) };
    let settle = format!(r#"{{"receipt":"{receipt}","action":"retry","after_ms":1,"error":"no luck"}}"#);
    seeds.push(("json", "settle".to_owned(), settle.into_bytes()));
    let target = format!(r#"{{"id":"{id}","due":"2026-11-21T18:00:00Z"}}"#);
    seeds.push(("json", "reschedule".to_owned(), target.into_bytes()));
    let cursor = format!("cursor={}&max=5", Cursor { due: Timestamp::MAX, id });
    seeds.push(("query", "cursor".to_owned(), cursor.into_bytes()));
    for (entry, streams) in [("ndjson", STREAMS), ("beanstalkd", CONNECTIONS)] {
        for (i, (limit, pieces, body)) in streams.iter().enumerate() {
            let bytes = [&[*limit, pieces.len() as u8], *pieces, *body].concat();
            seeds.push((entry, format!("{i:02}"), bytes));
        }
    }
    for len in [221, 222, 223, 700] {
        let line = [&[9, 2, 200, 23], &b"a".repeat(len)[..], b"\r\nquit\r\n"].concat();
        seeds.push(("beanstalkd", format!("line-{len}"), line));
    }
    seeds
}
