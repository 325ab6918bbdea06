//! Memory an entry: what a process grows by when a queue is filled, less the payload.
//!
//! Each side fills its queue in a process of its own, so that nobody grows into what another has freed. Pages are
//! counted, so allocators' overhead is in it; of the JDK's heap what is left after its collector has run.

use super::fill::Queue;
use super::heap::Heap;
use super::jdk::Jdk;
use super::ours::Ours;
#[cfg(feature = "peers")]
use super::tokio_util::TokioUtil;
use super::{Samples, add_rows, own_process};
use crate::Result;
use crate::report::Better;
use crate::run::Run;

const PAYLOAD: f64 = 8.0;

/// Bytes an entry over the payload, of one side.
pub(super) fn measure(side: &str, n: u64) -> Result<Vec<f64>> {
    let bytes = match side {
        Ours::NAME => fill::<Ours>(n)?,
        Heap::NAME => fill::<Heap>(n)?,
        #[cfg(feature = "peers")]
        TokioUtil::NAME => fill::<TokioUtil>(n)?,
        _ => return Err(format!("there is no side '{side}'").into()),
    };
    Ok(vec![bytes])
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

pub(super) fn compare(run: &mut Run, jdk: Option<&Jdk>) -> Result<()> {
    for n in [1_000_000, 5_000_000] {
        let work = format!("{n} pending");
        if !run.wants(&work) {
            continue;
        }
        let ask = |side: &str| own_process::ask(&format!("bytes {side} {n}"));
        let mut sides = vec![Samples { name: Ours::NAME, values: ask(Ours::NAME)? }];
        if let Some(jdk) = jdk {
            sides.push(Samples { name: "jdk", values: jdk.measure("bytes", &[n])? });
        }
        #[cfg(feature = "peers")]
        sides.push(Samples { name: TokioUtil::NAME, values: ask(TokioUtil::NAME)? });
        sides.push(Samples { name: Heap::NAME, values: ask(Heap::NAME)? });
        add_rows(run, &work, "bytes_over_payload", Better::Lower, sides);
    }
    Ok(())
}
