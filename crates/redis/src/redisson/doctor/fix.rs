//! Mending what a report tells of.

use super::super::consumer;
use super::super::element::Layout;
use super::super::error::Error;
use super::super::mover::{Mover, MoverOptions};
use super::super::script;
use super::Doctor;
use super::finding::{Finding, Fix};

/// How many elements one script mends: each searches the list.
const AT_ONCE: usize = 5;

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
        Some(Fix::Reap) => consumer::reap(&doctor.link, &doctor.keys, doctor.options.max_attempts).await,
    }
}

async fn elements(doctor: &Doctor, fix: &str, finding: &Finding) -> Result<usize, Error> {
    let keys = [doctor.keys.pending(), doctor.keys.timeouts(), doctor.keys.set_aside()];
    let mut fixed = 0;
    for some in finding.elements.chunks(AT_ONCE) {
        let mut arguments = vec![fix.as_bytes().to_vec()];
        arguments.extend_from_slice(some);
        fixed += script::FIX
            .call::<usize>(&doctor.link, &keys, &arguments)
            .await
            .map_err(|error| doctor.error(&error))?;
    }
    Ok(fixed)
}

fn mover(doctor: &Doctor, layout: Option<Layout>) -> Mover {
    let options =
        MoverOptions { layout, max_attempts: doctor.options.max_attempts, ..MoverOptions::default() };
    Mover::new(doctor.link.clone(), doctor.keys.clone(), options)
}
