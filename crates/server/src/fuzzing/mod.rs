//! What the fuzzers of the server call: one function for each kind of bytes that comes in, checks and all.
//!
//! Each takes any bytes, and panics if the server does what it must not. `fuzz/` runs them with bytes that a
//! fuzzer finds; an ordinary test runs them with the files in `fuzz/corpus/` and with those of `seeds`.

mod beanstalkd;
mod config;
mod json;
mod ndjson;
mod query;
mod seeds;

use crate::http::Problem;

pub use beanstalkd::beanstalkd;
#[cfg(test)]
pub(crate) use beanstalkd::written;
pub use config::config;
pub use json::json;
pub use ndjson::ndjson;
pub use query::query;
pub use seeds::{Seed, seeds};

/// A function above, by the name of its corpus.
pub type Entry = (&'static str, fn(&[u8]));

/// All of them.
pub const ENTRIES: [Entry; 5] =
    [("beanstalkd", beanstalkd), ("config", config), ("query", query), ("json", json), ("ndjson", ndjson)];

/// Looks at what came of a request: a refusal has a code of its own, and never carries a megabyte back.
fn look<T>(result: Result<T, Problem>) -> Option<T> {
    let problem = match result {
        Ok(value) => return Some(value),
        Err(problem) => problem,
    };
    let wire = serde_json::to_value(&problem).expect("a problem has only text and numbers");
    assert_ne!(wire["code"], "internal", "{wire}");
    let said = wire["detail"].as_str().map_or(0, |detail| detail.chars().count());
    assert!((1..1_000).contains(&said), "{said} characters");
    assert!(problem.status().is_client_error(), "{wire}");
    None
}
