//! Reminds you: `cargo run -p dwell --example reminder -- 5s 'the tea is ready'`.
//!
//! The reminder is in files: stop the program, start it without arguments, and it still comes.

use std::error::Error;

use dwell::{Action, Engine, Options, Put, Settle, Take, parse_duration_ms};

fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::open(std::env::temp_dir().join("dwell-reminders"), Options::default())?;
    let reminders = engine.blocking();
    let queue: dwell::QueueName = "reminders".parse()?;

    let mut args = std::env::args().skip(1);
    if let (Some(delay), Some(text)) = (args.next(), args.next()) {
        let put = Put::new(queue.clone(), text).after_ms(parse_duration_ms(&delay)?);
        println!("due {}", reminders.put_one(put)?.due);
    }
    // An hour is as good as any other: nothing runs while nothing is due.
    while let Some(delivery) = reminders.take(Take::from(queue.clone()).wait_ms(3_600_000))?.pop() {
        println!("{}  {}", delivery.taken_at, String::from_utf8_lossy(&delivery.message.body));
        reminders.settle_one(Settle { receipt: delivery.receipt, action: Action::Ack })?;
        // A queue without messages is no queue.
        if reminders.stats(queue.clone()).is_err() {
            break;
        }
    }
    engine.close()?;
    Ok(())
}
