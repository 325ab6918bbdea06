//! Reminds you: `cargo run -p dwell --example reminder -- 5s 'the tea is ready'`.
//!
//! The reminder is in files: stop the program, start it without arguments, and it still comes.

use std::error::Error;
use std::time::Duration;

use dwell::blocking::Dwell;
use dwell::parse_duration_ms;

fn main() -> Result<(), Box<dyn Error>> {
    let dwell = Dwell::open(std::env::temp_dir().join("dwell-reminders"))?;
    let reminders = dwell.queue("reminders")?;

    let mut args = std::env::args().skip(1);
    if let (Some(delay), Some(text)) = (args.next(), args.next()) {
        let delay = Duration::from_millis(parse_duration_ms(&delay)?);
        println!("due {}", reminders.put(text).delay(delay).call()?.due);
    }
    // A queue without messages is no queue. An hour is as good as any other: nothing runs while nothing is due.
    while reminders.stats().is_ok() {
        if let Some(job) = reminders.take().wait(Duration::from_secs(60 * 60)).call()? {
            println!("{}  {}", job.taken_at, job.text()?);
            job.ack()?;
        }
    }
    Ok(dwell.close()?)
}
