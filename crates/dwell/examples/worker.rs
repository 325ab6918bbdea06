//! A worker on tokio: handles messages, retries those that fail, and looks at the dead at the end.
//! `cargo run -p dwell --example worker`
//!
//! Its leases are bound to the process: were it to die, its messages would be free at the next opening. Each run has
//! a folder of its own, and removes it at its end.

use std::error::Error;

use dwell::{
    Action, Delivery, Engine, Options, Put, QueueName, Setting, SettingChange, Settle, StateKind, Store as _,
    Take,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let engine = Engine::open(folder.path(), Options::default())?;
    let queue: QueueName = "mails".parse()?;
    let twice = "2".parse().map(dwell::AttemptLimit::At)?;
    let settings = vec![SettingChange::Set(Setting::MaxAttempts(twice))];
    engine.configure(queue.clone(), settings).await?;

    let puts = ["to ann", "to nobody", "to bob"].map(|body| Put::new(queue.clone(), body).after_ms(100));
    for answer in engine.put(puts.to_vec()).await {
        answer?;
    }

    let take = Take::from(queue.clone()).max(10).wait_ms(1_000).bound();
    loop {
        let deliveries = engine.take(take.clone()).await?;
        if deliveries.is_empty() {
            break;
        }
        let settles = deliveries
            .into_iter()
            .map(|delivery| Settle { action: handle(&delivery), receipt: delivery.receipt });
        for answer in engine.settle(settles.collect()).await {
            println!("  {:?}", answer?);
        }
    }

    for dead in engine.list(queue, StateKind::Dead, None, 100).await?.messages {
        let body = String::from_utf8_lossy(&dead.body).into_owned();
        println!("dead: {body}, {}", dead.standing.last_error.as_deref().unwrap_or("no error"));
    }
    engine.close()?;
    Ok(())
}

/// Sends a mail, or says why not.
fn handle(delivery: &Delivery) -> Action {
    let body = String::from_utf8_lossy(&delivery.message.body);
    println!("{body}, attempt {}", delivery.message.standing.attempt());
    if body.ends_with("nobody") {
        return Action::Retry { after_ms: Some(50), error: Some("no such person".into()), priority: None };
    }
    Action::Ack
}
