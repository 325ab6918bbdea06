//! Memory an entry: what a process grows by when a queue is filled, less the payload.
//!
//! Each side fills its queue in a process of its own, which is this program again with [`ASK`] set; so nobody
//! grows into what another has freed. Pages are counted, so allocators' overhead is in it.

use std::env;
use std::process::Command;

use super::fill::Queue;
use super::heap::Heap;
use super::ours::Ours;
#[cfg(feature = "peers")]
use super::tokio_util::TokioUtil;
use super::{Samples, add_rows};
use crate::Result;
use crate::report::Better;
use crate::run::Run;

/// Names the side and the number of items that the process is to fill.
const ASK: &str = "DWELL_BENCH_BYTES";

const PAYLOAD: f64 = 8.0;

pub(super) fn asked_of_this_process() -> Option<String> {
    env::var(ASK).ok()
}

/// Fills the queue that was asked for.
pub(super) fn answer(run: &mut Run, asked: &str) -> Result<()> {
    let (side, n) = asked.split_once(' ').ok_or("ask for a side and a number")?;
    let n: u64 = n.parse()?;
    let bytes = match side {
        Ours::NAME => fill::<Ours>(n)?,
        Heap::NAME => fill::<Heap>(n)?,
        #[cfg(feature = "peers")]
        TokioUtil::NAME => fill::<TokioUtil>(n)?,
        _ => return Err(format!("there is no side '{side}'").into()),
    };
    run.alone("bytes", "bytes", vec![bytes]);
    Ok(())
}

fn fill<Q: Queue>(n: u64) -> Result<f64> {
    let mut queue = Q::new();
    queue.start();
    let before = resident_bytes()?;
    queue.fill(n, 3_600_000_000_000, 500_000_000);
    Ok((resident_bytes()? - before) / n as f64 - PAYLOAD)
}

fn resident_bytes() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024.0)
}

pub(super) fn compare(run: &mut Run) -> Result<()> {
    for n in [1_000_000, 5_000_000] {
        let work = format!("{n} pending");
        if !run.wants(&work) {
            continue;
        }
        let mut sides = vec![Samples { name: Ours::NAME, values: vec![ask(Ours::NAME, n)?] }];
        #[cfg(feature = "peers")]
        sides.push(Samples { name: TokioUtil::NAME, values: vec![ask(TokioUtil::NAME, n)?] });
        sides.push(Samples { name: Heap::NAME, values: vec![ask(Heap::NAME, n)?] });
        add_rows(run, &work, "bytes_over_payload", Better::Lower, sides);
    }
    Ok(())
}

fn ask(side: &str, n: u64) -> Result<f64> {
    let folder = env::temp_dir();
    let mut again = Command::new(env::current_exe()?);
    again
        .args(["delay-queue", "--json", "--rounds", "1", "--dir"])
        .arg(folder)
        .env(ASK, format!("{side} {n}"));
    let output = again.output()?;
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let report: serde_json::Value = serde_json::from_str(line)?;
    Ok(report["rows"][0]["ours"].as_f64().ok_or("the process answers a number")?)
}
