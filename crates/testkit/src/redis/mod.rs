//! Real Redis servers: started on free loopback ports, stopped when they are dropped.
//!
//! They need `redis-server` in the path; `scripts/test` installs it.

mod cluster;
pub mod proxy;
mod sentinel;
mod server;

pub use cluster::Cluster;
pub use sentinel::Sentinels;
pub use server::Server;

use redis::Value;

/// A reply that is a text.
#[track_caller]
pub fn text(reply: Value) -> String {
    redis::from_redis_value(reply).expect("the reply is a text")
}

/// A reply that is this number.
pub fn number(number: i64) -> Value {
    Value::Int(number)
}

/// Keeps a line about what a test has counted, in the folder `counted` of `folder`, which `scripts/test` prints: what a
/// test prints is seen by nobody while it passes.
pub fn count(folder: &str, name: &str, line: &str) {
    println!("{line}");
    let folder = std::path::Path::new(folder).join("counted");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    std::fs::write(folder.join(name), format!("{line}\n")).expect("a file can be written");
}
