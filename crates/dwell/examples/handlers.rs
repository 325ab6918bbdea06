//! Handlers by queue name in one worker: one is slow, one fails, one is idle, and none delays the others.
//! `cargo run -p dwell --features delivery --example handlers`

use std::error::Error;
use std::time::Duration;

use dwell::delivery::{Failure, Job, Ladder, Lane, Worker};
use dwell::{AttemptLimit, Dwell, Setting, StateKind};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dwell = Dwell::memory();
    let (slow, failing, quick) = (dwell.queue("slow")?, dwell.queue("failing")?, dwell.queue("quick")?);
    failing.set(Setting::MaxAttempts(AttemptLimit::try_from(2)?)).await?;
    slow.put_many(["a report", "another report"]).await.all()?;
    failing.put("nobody").await?;
    let puts =
        (1..=5).map(|number| quick.put(format!("order {number}")).delay(Duration::from_millis(100 * number)));
    quick.put_many(puts).await.all()?;

    let (done, mut handled) = mpsc::unbounded_channel();
    let worker = Worker::new(&dwell)
        .lane(Lane::new("slow", write_report).concurrency(1))
        .lane(Lane::new("failing", send_mail).retry(Ladder::parse(["200ms"])?))
        .handle("idle", |_: Job| async {})
        .handle("quick", move |job: Job| {
            let done = done.clone();
            async move {
                println!("quick: {}, {} ms after its instant", job.text()?, job.lateness().as_millis());
                done.send(())?;
                Ok::<(), Failure>(())
            }
        });

    // Ends after five messages. The drain lets the others finish what they hold.
    let all_handled = async {
        for _ in 0..5 {
            handled.recv().await;
        }
    };
    worker.drain(Duration::from_secs(5)).run_until(all_handled).await?;

    for dead in failing.list(StateKind::Dead, None, 10).await?.messages {
        println!("dead: {}", dead.standing.last_error.as_deref().unwrap_or("no error"));
    }
    Ok(dwell.close().await?)
}

async fn write_report(job: Job) -> Result<(), Failure> {
    println!("slow: begins {}", job.text()?);
    tokio::time::sleep(Duration::from_millis(400)).await;
    println!("slow: has written {}", job.text()?);
    Ok(())
}

async fn send_mail(job: Job) -> Result<(), Failure> {
    println!("failing: attempt {} to {}", job.attempt(), job.text()?);
    Err(Failure::retry("no such person"))
}
