//! Applies the fixes for a report's findings.

use std::time::Duration;

use super::super::consumer;
use super::super::element::Layout;
use super::super::error::Error;
use super::super::mover::{Mover, MoverOptions};
use super::super::script;
use super::Doctor;
use super::finding::{Finding, FindingKind, Fix};

/// The pause after each element, which leaves Redis to other clients: a fix searches the list.
const REST: Duration = Duration::from_millis(2);

pub(super) async fn fix(doctor: &Doctor, finding: &Finding) -> Result<usize, Error> {
    match finding.kind.fix() {
        None => Ok(0),
        Some(Fix::SetAside) => elements(doctor, "set_aside", finding).await,
        Some(Fix::Unlist) => elements(doctor, "unlist", finding).await,
        Some(Fix::List) => elements(doctor, "list", finding).await,
        Some(Fix::Once) => elements(doctor, "once", finding).await,
        Some(Fix::Round) => elements(doctor, "round", finding).await,
        Some(Fix::Rewrite) => Ok(mover(doctor, finding.layout).mend_all().await?.rewritten),
        Some(Fix::Move) => Ok(mover(doctor, None).move_due().await?.0),
        Some(Fix::Reap) if finding.kind == FindingKind::InInbox => reap(doctor, 0).await,
        Some(Fix::Reap) => reap(doctor, consumer::INBOX_MS).await,
    }
}

/// Gives back every payload that is not held.
///
/// The inbox may be given back at any time: a consumer that waits for a payload there finds it at the destination.
async fn reap(doctor: &Doctor, inbox_ms: u64) -> Result<usize, Error> {
    let mut count = 0;
    loop {
        let reaped =
            consumer::reap(&doctor.link, &doctor.keys, doctor.options.max_attempts, inbox_ms).await?;
        count += reaped.count;
        if !reaped.more {
            return Ok(count);
        }
        tokio::time::sleep(REST).await;
    }
}

async fn elements(doctor: &Doctor, fix: &str, finding: &Finding) -> Result<usize, Error> {
    let keys = [doctor.keys.pending(), doctor.keys.timeouts(), doctor.keys.set_aside()];
    let mut fixed = 0;
    for element in &finding.elements {
        let arguments = [fix.as_bytes().to_vec(), element.clone()];
        fixed += script::FIX
            .call::<usize>(&doctor.link, &doctor.keys, &keys, &arguments)
            .await
            .map_err(|error| doctor.error(&error))?;
        tokio::time::sleep(REST).await;
    }
    Ok(fixed)
}

fn mover(doctor: &Doctor, layout: Option<Layout>) -> Mover {
    let options =
        MoverOptions { layout, max_attempts: doctor.options.max_attempts, ..MoverOptions::default() };
    Mover::new(doctor.link.clone(), doctor.keys.clone(), options)
}
