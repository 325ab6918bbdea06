//! A worker on tokio: handles messages, retries those that fail, and lists the dead ones at the end.
//! `cargo run -p dwell --example worker`
//!
//! Its leases end with the process: if it crashes, its messages are ready again when the store is next opened. Each run
//! has its own folder, and removes it at the end.

use std::error::Error;
use std::time::Duration;

use dwell::{AttemptLimit, Dwell, Setting, StateKind};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let dwell = Dwell::open(folder.path())?;
    let mails = dwell.queue("mails")?;
    mails.set(Setting::MaxAttempts(AttemptLimit::try_from(2)?)).await?;

    let puts = ["to ann", "to nobody", "to bob"].map(|to| mails.put(to).delay(Duration::from_millis(100)));
    mails.put_many(puts).await.all()?;

    // Ends after one second without a message.
    let mut jobs = mails.take().max(10).session().until_idle(Duration::from_secs(1)).stream();
    while let Some(job) = jobs.next().await {
        let job = job?;
        println!("{}, attempt {}", job.text()?, job.attempt());
        let sent = send(job.text()?);
        match sent {
            Ok(()) => job.ack().await?,
            Err(error) => {
                let outcome = job.retry(error).after(Duration::from_millis(50)).await?;
                println!("  {outcome:?}");
            }
        }
    }

    for dead in mails.list(StateKind::Dead, None, 100).await?.messages {
        let body = String::from_utf8_lossy(&dead.body).into_owned();
        println!("dead: {body}, {}", dead.standing.last_error.as_deref().unwrap_or("no error"));
    }
    Ok(dwell.close().await?)
}

/// Sends a mail, or returns the reason why it cannot.
fn send(mail: &str) -> Result<(), &'static str> {
    if mail.ends_with("nobody") { Err("no such person") } else { Ok(()) }
}
