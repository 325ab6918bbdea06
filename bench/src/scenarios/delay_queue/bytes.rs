//! Memory per entry: the growth of a process when a queue is filled, less the payload.
//!
//! Each side fills its queue in a separate process, so that it does not reuse memory that another has freed. Pages are
//! counted, which includes the allocators' overhead; for the JDK, the heap after a garbage collection.

use serde_json::{Value, json};

use super::fill::Queue;
use super::heap::Heap;
use super::jdk::Jdk;
use super::ours::Ours;
#[cfg(feature = "peers")]
use super::tokio_util::TokioUtil;
use super::{Samples, add_rows};
use crate::Result;
use crate::own_process::{self, Part, count, number, text};
use crate::report::Better;
use crate::run::Run;

const PAYLOAD: f64 = 8.0;

/// The bytes per entry over the payload, for one `side` with `n` items.
pub(super) const PART: Part = Part { name: "delay-queue-bytes", run: measure };

fn measure(parameters: &Value) -> Result<Value> {
    let (side, n) = (text(parameters, "side")?, count(parameters, "n")?);
    let bytes = match side {
        Ours::NAME => fill::<Ours>(n)?,
        Heap::NAME => fill::<Heap>(n)?,
        #[cfg(feature = "peers")]
        TokioUtil::NAME => fill::<TokioUtil>(n)?,
        _ => return Err(format!("there is no side '{side}'").into()),
    };
    Ok(json!({ "bytes": bytes }))
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
        let ask = |side: &'static str| {
            let measured = own_process::ask(&PART, &json!({ "side": side, "n": n }))?;
            Ok::<_, Box<dyn std::error::Error>>(Samples {
                name: side,
                values: vec![number(&measured, "bytes")?],
            })
        };
        let mut sides = vec![ask(Ours::NAME)?];
        if let Some(jdk) = jdk {
            sides.push(Samples { name: "jdk", values: jdk.measure("bytes", &[n])? });
        }
        #[cfg(feature = "peers")]
        sides.push(ask(TokioUtil::NAME)?);
        sides.push(ask(Heap::NAME)?);
        add_rows(run, &work, "bytes_over_payload", Better::Lower, sides);
    }
    Ok(())
}
