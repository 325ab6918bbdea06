//! Entry points for fuzzers of the server: one function for each kind of input, with its checks.
//!
//! Each accepts any bytes, and panics if the server misbehaves. `fuzz/` runs them with a fuzzer's inputs; an ordinary
//! test runs them with the files in `fuzz/corpus/` and those of `seeds`.

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

/// All entry points.
pub const ENTRIES: [Entry; 5] =
    [("beanstalkd", beanstalkd), ("config", config), ("query", query), ("json", json), ("ndjson", ndjson)];

/// Checks the result of a request: a refusal has a code of its own, and never repeats a megabyte of input.
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
