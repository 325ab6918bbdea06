//! One line: queue, delay, key and body, all derived from the seed and the line's number.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dwell_testkit::Random;

use super::body;

/// The number of queues in a file.
pub(crate) const QUEUES: u32 = 50;

/// The name of a queue. Some have characters that are special in URLs and file systems.
pub(crate) fn queue_name(queue: u32) -> String {
    match queue % 5 {
        0 => format!("load/{queue:02}"),
        1 => format!("load:{queue:02}@eu"),
        _ => format!("load-{queue:02}"),
    }
}

/// One message of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputLine {
    /// The index of its queue, below [`QUEUES`]. Low indexes are more frequent.
    pub(crate) queue: u32,
    /// Its delay in milliseconds: 0 to a year, many of them short.
    pub(crate) delay_ms: u64,
    /// Its key, on one of three lines; no two lines of a file have the same key.
    pub(crate) key: Option<String>,
    /// Its body, which begins with the line's number in hexadecimal.
    pub(crate) body: Vec<u8>,
}

/// The number of hexadecimal digits at the start of each body.
const NUMBER_LEN: usize = 8;

impl InputLine {
    /// Makes the line with this number, from 0.
    pub(crate) fn make(seed: u64, number: u64) -> InputLine {
        let mut rng = Random::of(seed, number);
        let queue = rng.below(u64::from(QUEUES)).min(rng.below(u64::from(QUEUES))) as u32;
        let delay_ms = match rng.below(100) {
            0..25 => 0,
            25..50 => rng.between(1, 10_000),
            50..65 => rng.between(10_000, 300_000),
            65..80 => rng.between(300_000, 86_400_000),
            _ => rng.between(86_400_001, 365 * 86_400_000),
        };
        let key = match rng.below(6) {
            0 => Some(format!("order-{number}")),
            1 => Some(format!("заказ №{number} / \"é\" %2F")),
            _ => None,
        };
        let end = body::len(&mut rng).max(NUMBER_LEN + 1);
        let mut text = format!("{number:0NUMBER_LEN$x}").into_bytes();
        match rng.below(4) {
            0 => body::binary(&mut rng, &mut text, end),
            1 => body::unicode(&mut rng, &mut text, end),
            _ => body::ascii(&mut rng, &mut text, end),
        }
        InputLine { queue, delay_ms, key, body: text }
    }

    /// The name of its queue.
    pub(crate) fn queue_name(&self) -> String {
        queue_name(self.queue)
    }

    /// The number that a body begins with; `None` if it is not a body of such a file.
    pub(crate) fn number_in(body: &[u8]) -> Option<u64> {
        let digits = std::str::from_utf8(body.get(..NUMBER_LEN)?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    }

    /// Appends the line as an item of a batch put.
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        out.extend_from_slice(b"{\"queue\":");
        out.extend_from_slice(text(&queue_name(self.queue)).as_bytes());
        out.extend_from_slice(format!(",\"delay_ms\":{}", self.delay_ms).as_bytes());
        if let Some(key) = &self.key {
            out.extend_from_slice(format!(",\"key\":{}", text(key)).as_bytes());
        }
        match std::str::from_utf8(&self.body) {
            Ok(body) => out.extend_from_slice(format!(",\"body\":{}", text(body)).as_bytes()),
            Err(_) => {
                out.extend_from_slice(
                    format!(",\"body_base64\":\"{}\"", STANDARD.encode(&self.body)).as_bytes(),
                );
            }
        }
        out.push(b'}');
    }
}
