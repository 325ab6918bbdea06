//! `disk`: what the disk gives to a bare append + fdatasync, which other scenarios are measured against.

use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::peers::bare::Appender;
use crate::run::Run;
use crate::stopwatch::Stopwatch;
use crate::workload::{BATCH, BODY_BYTES};

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "disk", what: "bare appends, each synced: 128 bytes, and 128 KiB", run };

fn run(run: &mut Run) -> Result<()> {
    for (work, bytes, full) in
        [("append 128 B", BODY_BYTES, 20_000), ("append 128 KiB", BODY_BYTES * BATCH, 10_000)]
    {
        let syncs = run.scaled(full);
        let chunk = vec![0x5A; bytes];
        let mut rates = Vec::new();
        let mut micros = Histogram::<u64>::new(3)?;
        for _ in 0..run.rounds() {
            let mut file = Appender::create(&run.empty_folder("disk")?)?;
            let bar = run.progress(work, syncs);
            let all = Stopwatch::start();
            for _ in 0..syncs {
                let one = Stopwatch::start();
                file.append(&chunk)?;
                micros.record(u64::try_from(one.elapsed().as_micros())?)?;
                bar.inc(1);
            }
            rates.push(all.per_second(syncs));
            bar.finish_and_clear();
        }
        run.alone(work, "per_s", rates);
        run.latencies(work, &micros);
    }
    Ok(())
}
