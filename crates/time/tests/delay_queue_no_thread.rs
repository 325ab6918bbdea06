//! A process that is granted no thread for the timer of tasks: tasks wait all the same.

#![cfg(all(target_os = "linux", not(shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test, in its helpers too")]

mod support;

use std::fs;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dwell_time::DelayQueue;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::PATIENCE;

const MS: Duration = Duration::from_millis(1);
const NAME: &str = "tasks_wait_where_no_thread_is_granted";
const CHILD: &str = "DWELL_TEST_HAS_NO_THREADS";

/// The process gets no more memory from the system, and so no thread's stack either.
fn grant_nothing() -> Rlimit {
    let before = getrlimit(Resource::As);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    setrlimit(Resource::As, Rlimit { current: Some(kib * 1024), maximum: before.maximum }).unwrap();
    before
}

/// In a process of its own: what it is not granted no other test may lack.
#[test]
fn tasks_wait_where_no_thread_is_granted() {
    if std::env::var_os(CHILD).is_some() {
        return wait_without_threads();
    }
    let (tell, told) = mpsc::channel();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", NAME, "--nocapture"]).env(CHILD, "1");
    thread::spawn(move || tell.send(child.output().unwrap()));
    let output = told.recv_timeout(PATIENCE).expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn wait_without_threads() {
    let queue = DelayQueue::new();
    queue.put(1, MS * 20).unwrap();
    queue.put(2, MS * 40).unwrap();
    let before = grant_nothing();
    let refused = thread::Builder::new().stack_size(256 * 1024).spawn(|| {}).is_err();
    let taken = refused.then(|| pollster::block_on(queue.take_async()));
    setrlimit(Resource::As, before).unwrap();
    assert_eq!(taken, Some(Ok(1)));
    assert_eq!(pollster::block_on(queue.take_async()), Ok(2), "it is granted now");
}
