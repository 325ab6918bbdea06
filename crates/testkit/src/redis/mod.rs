//! Real Redis servers: started on free loopback ports, stopped on drop.
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

/// Returns a text reply.
#[track_caller]
pub fn text(reply: Value) -> String {
    redis::from_redis_value(reply).expect("the reply is a text")
}

/// A reply with this number.
pub fn number(number: i64) -> Value {
    Value::Int(number)
}

/// Writes a line with a test's counts to the folder `counted` of `folder`, which `scripts/test` prints: the output of a
/// passing test is not shown.
pub fn count(folder: &str, name: &str, line: &str) {
    println!("{line}");
    let folder = std::path::Path::new(folder).join("counted");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    std::fs::write(folder.join(name), format!("{line}\n")).expect("a file can be written");
}
