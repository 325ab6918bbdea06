//! A process that cannot start a thread for the timer of tasks: tasks wait all the same.

#![cfg(all(target_os = "linux", not(shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test, in its helpers too")]

mod support;

use std::fs;
use std::process::Command;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use dwell_time::DelayQueue;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{PATIENCE, await_waiting};

const MS: Duration = Duration::from_millis(1);
const CHILD: &str = "DWELL_TEST_HAS_NO_THREADS";

/// Sets a limit at which the system grants the process no more memory, and so no thread's stack.
fn grant_nothing() -> Rlimit {
    let before = getrlimit(Resource::As);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    setrlimit(Resource::As, Rlimit { current: Some(kib * 1024), maximum: before.maximum }).unwrap();
    before
}

/// Runs a test in a child process, so that the limit does not affect other tests.
fn in_a_process(name: &str, test: fn()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let (tell, told) = mpsc::channel();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
    thread::spawn(move || tell.send(child.output().unwrap()));
    let output = told.recv_timeout(PATIENCE).expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn is_refused() -> bool {
    thread::Builder::new().stack_size(256 * 1024).spawn(|| {}).is_err()
}

/// Returns a queue that needs no more memory for its first items.
fn used_queue() -> DelayQueue<u32> {
    let queue = DelayQueue::new();
    for item in 0..10 {
        queue.put(item, Duration::ZERO).unwrap();
    }
    (0..10).for_each(|item| assert_eq!(queue.take(), Ok(item)));
    queue
}

#[test]
fn tasks_wait_where_no_thread_is_granted() {
    in_a_process("tasks_wait_where_no_thread_is_granted", wait_without_threads);
}

#[test]
fn a_thread_waits_for_no_task_that_is_called_and_not_polled_where_no_timer_is_granted() {
    in_a_process(
        "a_thread_waits_for_no_task_that_is_called_and_not_polled_where_no_timer_is_granted",
        || {
            let queue = used_queue();
            let mut kept = Box::pin(queue.take_async());
            assert!(kept.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let (tell, told) = mpsc::sync_channel(1);
            thread::spawn({
                let queue = queue.clone();
                move || tell.send(queue.take())
            });
            await_waiting(&queue, 2);
            let before = grant_nothing();
            let refused = is_refused();
            queue.put(1, Duration::ZERO).unwrap();
            let taken = told.recv_timeout(PATIENCE / 2);
            setrlimit(Resource::As, before).unwrap();
            assert!(refused);
            assert_eq!(taken, Ok(Ok(1)));
        },
    );
}

#[test]
fn a_task_follows_no_leader_that_is_granted_no_timer() {
    in_a_process("a_task_follows_no_leader_that_is_granted_no_timer", || {
        let queue = used_queue();
        queue.put(1, MS * 20).unwrap();
        let before = grant_nothing();
        let refused = is_refused();
        let mut kept = Box::pin(queue.take_async());
        assert!(kept.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let taken = pollster::block_on(queue.take_async());
        setrlimit(Resource::As, before).unwrap();
        assert!(refused);
        assert_eq!(taken, Ok(1));
    });
}

fn wait_without_threads() {
    let queue = DelayQueue::new();
    queue.put(1, MS * 20).unwrap();
    queue.put(2, MS * 40).unwrap();
    let before = grant_nothing();
    let refused = is_refused();
    let taken = refused.then(|| pollster::block_on(queue.take_async()));
    setrlimit(Resource::As, before).unwrap();
    assert_eq!(taken, Some(Ok(1)));
    assert_eq!(pollster::block_on(queue.take_async()), Ok(2), "it is granted now");
}
