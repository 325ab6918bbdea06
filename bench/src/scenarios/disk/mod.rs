//! `disk`: what the disk gives to appends that are synced one by one, which other scenarios are measured against; and
//! the ways of writing them that the engine's journal was chosen from.
//!
//! - `file`: a file that was made ready, and plain writes to it, through the page cache or past it
//! - `uring`: the same by io_uring

#[cfg(target_os = "linux")]
mod file;
#[cfg(target_os = "linux")]
mod uring;

use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::peers::bare::Appender;
use crate::run::Run;
use crate::stopwatch::Stopwatch;
use crate::workload::{BATCH, BODY_BYTES};

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "disk", what: "bare appends, each synced, and other ways of writing them", run };

/// Appends one chunk and makes it durable.
type Append = Box<dyn FnMut(&[u8]) -> Result<()>>;

fn run(run: &mut Run) -> Result<()> {
    for (work, bytes, full) in
        [("append 128 B", BODY_BYTES, 20_000), ("append 128 KiB", BODY_BYTES * BATCH, 10_000)]
    {
        let start = |run: &Run| -> Result<Append> {
            let mut file = Appender::create(&run.empty_folder("disk")?)?;
            Ok(Box::new(move |chunk| file.append(chunk)))
        };
        measure(run, work, bytes, full, start)?;
    }
    #[cfg(target_os = "linux")]
    ways(run)?;
    Ok(())
}

/// Each way with chunks of the size that a batch has with one caller, with 64, and with many.
#[cfg(target_os = "linux")]
fn ways(run: &mut Run) -> Result<()> {
    use self::file::{Ready, SET_ASIDE};

    run.note(format!(
        "in files of {} MiB. set aside: by fallocate. zeros ahead: besides, zeros are written {} KiB ahead of chunks. \
         written before: all of it was. dsync: pwritev2 with RWF_DSYNC instead of pwrite and fdatasync. direct: past \
         the page cache, whole blocks of 4 KiB. io_uring: a write and a linked fdatasync in one call",
        SET_ASIDE >> 20,
        file::AHEAD >> 10,
    ));
    for (size, bytes, full) in
        [("256 B", 256, 10_000), ("16 KiB", 16 << 10, 3_000), ("128 KiB", 128 << 10, 450)]
    {
        let ways: [(&str, Start); 7] = [
            ("set aside", |path| file::buffered(path, Ready::SetAside, false)),
            ("zeros ahead", |path| file::buffered(path, Ready::ZerosAhead, false)),
            ("zeros ahead, dsync", |path| file::buffered(path, Ready::ZerosAhead, true)),
            ("written before", |path| file::buffered(path, Ready::Written, false)),
            ("written before, dsync", |path| file::buffered(path, Ready::Written, true)),
            ("written before, direct", file::direct),
            ("written before, io_uring", uring::buffered),
        ];
        for (way, start) in ways {
            let start = |run: &Run| start(&run.empty_folder("disk")?.join("bare.log"));
            measure(run, &format!("{size}, {way}"), bytes, full, start)?;
        }
    }
    Ok(())
}

/// Makes a file ready.
#[cfg(target_os = "linux")]
type Start = fn(&std::path::Path) -> Result<Append>;

fn measure(
    run: &mut Run,
    work: &str,
    bytes: usize,
    full: u64,
    start: impl Fn(&Run) -> Result<Append>,
) -> Result<()> {
    let syncs = run.scaled(full);
    let chunk = vec![0x5A; bytes];
    let mut rates = Vec::new();
    let mut micros = Histogram::<u64>::new(3)?;
    for _ in 0..run.rounds() {
        let mut append = start(run)?;
        let bar = run.progress(work, syncs);
        let all = Stopwatch::start();
        for _ in 0..syncs {
            let one = Stopwatch::start();
            append(&chunk)?;
            micros.record(u64::try_from(one.elapsed().as_micros())?)?;
            bar.inc(1);
        }
        rates.push(all.per_second(syncs));
        bar.finish_and_clear();
    }
    run.alone(work, "per_s", rates);
    run.latencies(work, &micros);
    Ok(())
}
