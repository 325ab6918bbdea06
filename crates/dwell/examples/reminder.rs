//! Reminds you: `cargo run -p dwell --example reminder -- 5s 'the tea is ready'`.
//!
//! Reminders are stored in files: stop the program, start it without arguments, and they are still delivered.

use std::error::Error;
use std::time::Duration;

use dwell::blocking::{Dwell, Queue};
use dwell::parse_duration_ms;

fn main() -> Result<(), Box<dyn Error>> {
    let dwell = Dwell::open(std::env::temp_dir().join("dwell-reminders"))?;
    let reminders = dwell.queue("reminders")?;

    let mut args = std::env::args().skip(1);
    if let (Some(delay), Some(text)) = (args.next(), args.next()) {
        let delay = Duration::from_millis(parse_duration_ms(&delay)?);
        println!("due {}", reminders.put(text).delay(delay).call()?.due);
    }
    // The length of the wait does not matter: nothing runs until a reminder is due.
    while has_more(&reminders)? {
        if let Some(job) = reminders.take().wait(Duration::from_secs(60 * 60)).call()? {
            println!("{}  {}", job.taken_at, job.text()?);
            job.ack()?;
        }
    }
    Ok(dwell.close()?)
}

/// Whether a reminder is still to come. One whose attempts are all spent is dead, and is not delivered.
fn has_more(reminders: &Queue) -> dwell::Result<bool> {
    match reminders.stats() {
        Ok(stats) => Ok(stats.counts.scheduled + stats.counts.ready + stats.counts.leased > 0),
        // A queue without messages is unknown.
        Err(dwell::Error::UnknownQueue { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
