//! Queues with many elements: no script iterates over all of them, whatever it is for.

use std::collections::BTreeSet;

use dwell_redisson::{Doctor, DoctorOptions, FindingKind, Layout, Mover, MoverOptions, When, encode_element};

use crate::watch::{Watch, read};
use crate::{Fixture, HOUR_MS, run, text};

/// Fills the queue with elements of the new layout, due in the far future in the order of the list.
const FILL: &str = "
local from, to = tonumber(ARGV[1]), tonumber(ARGV[2])
for n = from, to do
  local payload = string.rep('0', 92) .. string.format('%08d', n)
  local packed = struct.pack('Bc0Lc0', 8, string.format('%08d', n), #payload, payload)
  redis.call('ZADD', KEYS[2], 4102444800000 + n, packed)
  redis.call('RPUSH', KEYS[1], packed)
end";

const COUNT: usize = 60_000;

/// The number of elements that one script may read, and the number of searches without a bound that it may make.
/// Removing an element costs one search, and the last step of a debounce and a fix of the doctor cost a few.
const READ: usize = 2_100;
const SEARCHES: usize = 3;

async fn fill(bed: &Fixture, from: usize, to: usize) {
    let mut start = from;
    while start < to {
        let end = to.min(start + 5_000);
        let mut command = redis::cmd("EVAL");
        command.arg(FILL).arg(2).arg(bed.keys.pending()).arg(bed.keys.timeouts()).arg(start).arg(end - 1);
        bed.send(&command).await;
        start = end;
    }
}

async fn plant_due_first(bed: &Fixture, count: usize) {
    for n in 0..count {
        let packed = encode_element(Layout::Old, (n as u64 + 7).to_be_bytes(), format!("old {n}").as_bytes());
        bed.plant(&packed, &(4_000_000_000_000 + n).to_string()).await;
    }
}

/// Asserts that no script has iterated over everything since the watch began.
fn assert_short(what: &str, watch: Watch, bed: &Fixture) {
    let scripts = watch.scripts(&bed.server);
    assert!(!scripts.is_empty());
    for script in scripts {
        let (elements, searches) = read(&script);
        assert!(elements <= READ, "{what}: a script read {elements} elements: {script:?}");
        assert!(searches <= SEARCHES, "{what}: a script made {searches} searches: {script:?}");
    }
}

/// Asserts that list and sorted set hold the same elements. Returns their number.
async fn whole(bed: &Fixture) -> usize {
    let listed: Vec<Vec<u8>> =
        bed.link.ask(redis::cmd("LRANGE").arg(bed.keys.pending()).arg(0).arg(-1)).await.unwrap();
    let scheduled: Vec<Vec<u8>> =
        bed.link.ask(redis::cmd("ZRANGE").arg(bed.keys.timeouts()).arg(0).arg(-1)).await.unwrap();
    let count = listed.len();
    let (listed, scheduled): (BTreeSet<_>, BTreeSet<_>) =
        (listed.into_iter().collect(), scheduled.into_iter().collect());
    assert_eq!(listed.len(), count, "some are listed twice");
    assert!(listed == scheduled, "{} listed, {} scheduled", listed.len(), scheduled.len());
    count
}

/// Elements that are far from either end are left to the walk, which handles a few at a time.
#[test]
fn a_script_that_mends_does_not_search_for_all_it_finds() {
    run(async {
        let bed = Fixture::new().await;
        fill(&bed, 0, COUNT / 2).await;
        plant_due_first(&bed, 100).await;
        fill(&bed, COUNT / 2, COUNT).await;
        let code = [
            include_str!("../../src/lua/common.lua"),
            include_str!("../../src/lua/answer.lua"),
            include_str!("../../src/lua/element.lua"),
            include_str!("../../src/lua/layout.lua"),
            include_str!("../../src/lua/some.lua"),
            include_str!("../../src/lua/place.lua"),
            include_str!("../../src/lua/mend.lua"),
        ]
        .concat();
        let mend = async |of: &str, index: usize, after: &[u8], number: u64| {
            let mut command = redis::cmd("EVAL");
            command.arg(&code).arg(4).arg(bed.keys.pending()).arg(bed.keys.timeouts());
            command.arg(bed.keys.set_aside()).arg(bed.keys.answer("lane")).arg(of).arg(index).arg(after);
            command.arg(100).arg("new").arg(10_000).arg(100_000).arg(&number.to_be_bytes());
            let reply: (usize, Vec<u8>, u8, usize, usize, usize, usize, u64) =
                bed.link.ask(&command).await.unwrap();
            (reply.0, reply.1, reply.4)
        };
        assert_eq!(mend("timeouts", 0, b"", 1).await.2, 0, "none of them is near an end");
        let (mut index, mut after, mut rewritten, mut scripts) = (COUNT / 2, Vec::new(), 0, 0);
        while rewritten < 100 {
            let (next, last, some) = mend("list", index, &after, scripts + 2).await;
            assert!((1..=3).contains(&some), "{some} in one script");
            (index, after) = (next, last);
            rewritten += some;
            scripts += 1;
        }
        assert_eq!((whole(&bed).await, index >= COUNT / 2 + 100), (COUNT + 100, true));
    });
}

/// All are due first, and all are in the middle of the list: searching for each from an end took seconds.
#[test]
fn mending_goes_in_short_scripts_beside_offers_and_moves() {
    run(async {
        let bed = Fixture::new().await;
        bed.plant(&encode_element(Layout::New, *b"earliest", b"due"), "1000").await;
        fill(&bed, 0, COUNT / 2).await;
        plant_due_first(&bed, 150).await;
        bed.plant(b"poison in the middle", "3999999999999").await;
        fill(&bed, COUNT / 2, COUNT).await;
        let options = MoverOptions { layout: Some(Layout::New), ..MoverOptions::default() };
        let mut mender = Mover::new(bed.link.clone(), bed.keys.clone(), options);
        let watch = Watch::start(&bed.server);
        let mending = mender.mend_all();
        // Others remove from the head, as movers do, and offer at the end.
        let others = async {
            for n in 0..300 {
                let first: Vec<u8> =
                    bed.link.ask(redis::cmd("LINDEX").arg(bed.keys.pending()).arg(0)).await.unwrap();
                let payload = &first[17..];
                assert!(bed.queue.remove(&String::from_utf8_lossy(payload).into_owned()).await.unwrap());
                bed.offer(&format!("new {n}"), HOUR_MS).await;
            }
        };
        let (mended, ()) = tokio::join!(mending, others);
        assert_short("mending", watch, &bed);
        let mended = mended.unwrap();
        assert_eq!((mended.set_aside, mended.rewritten), (1, 150));
        assert_eq!(whole(&bed).await, COUNT + 1 + 150);
        for n in [0, 75, 149] {
            assert!(bed.queue.contains(&format!("old {n}")).await.unwrap(), "old {n}");
        }
        // It has reached the end, and continues from there.
        bed.plant(&encode_element(Layout::Old, *b"the last", b"last"), "4102444800000").await;
        assert_eq!(mender.mend_all().await.unwrap().rewritten, 1);
    });
}

#[test]
fn a_debounce_and_the_doctor_read_in_pages() {
    run(async {
        let bed = Fixture::new().await;
        fill(&bed, 0, COUNT).await;
        for value in ["x", "y", "x"] {
            bed.offer(value, HOUR_MS).await;
        }
        let watch = Watch::start(&bed.server);
        let debounced = bed.queue.debounce(&text("x"), When::In(HOUR_MS)).await.unwrap();
        assert_eq!(debounced.taken_out, 2);
        assert!(bed.queue.contains(&format!("{:0100}", COUNT - 1)).await.unwrap());
        // Elements of each kind that the doctor checks a second time.
        for n in 0..20_u64 {
            let element = |kind: &str| encode_element(Layout::New, n.to_be_bytes(), kind.as_bytes());
            bed.send(redis::cmd("RPUSH").arg(bed.keys.pending()).arg(element("listed only"))).await;
            bed.plant(&element("twice"), "4102444800000").await;
            let mut add = redis::cmd("ZADD");
            bed.send(add.arg(bed.keys.timeouts()).arg("4102444800000").arg(element("scheduled only"))).await;
        }
        for n in 0..20_u64 {
            let twice = encode_element(Layout::New, n.to_be_bytes(), b"twice");
            bed.send(redis::cmd("RPUSH").arg(bed.keys.pending()).arg(twice)).await;
        }
        let doctor = Doctor::new(bed.link.clone(), bed.keys.clone(), DoctorOptions::default());
        // Live clients remove from the head and offer at the end.
        let others = async {
            for n in 0..100 {
                assert_eq!(bed.queue.poll(1).await.unwrap().len(), 1);
                bed.offer(&format!("new {n}"), HOUR_MS).await;
            }
        };
        let (report, ()) = tokio::join!(doctor.examine(), others);
        assert_short("debounce and doctor", watch, &bed);
        let watch = Watch::start(&bed.server);
        let report = report.unwrap();
        let counts: Vec<_> = report.findings.iter().map(|finding| (finding.kind, finding.count)).collect();
        let listeners = (FindingKind::NobodyListens, report.scheduled);
        let expected = [
            (FindingKind::ListedOnly, 20),
            (FindingKind::ScheduledOnly, 20),
            (FindingKind::ListedTwice, 20),
            listeners,
        ];
        assert_eq!(counts, expected);
        for (finding, fix) in report.plan() {
            assert_eq!(doctor.fix(finding).await.unwrap(), 20, "{fix:?}");
        }
        assert_short("the doctor's fixes", watch, &bed);
        assert_eq!(whole(&bed).await, COUNT + 2 + 40);
    });
}
