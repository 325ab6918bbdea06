//! The checks of the JSR-166 test suite for `java.util.concurrent.DelayQueue`.
//!
//! The left column has the names of its `DelayQueueTest` (tck/DelayQueueTest.java, public domain):
//!
//! | there | here |
//! |---|---|
//! | `testConstructor1` to `6`, `testRemainingCapacity` | `a_new_queue_is_empty_and_has_no_limit` |
//! | `testEmpty` | `is_empty_before_the_first_put_and_after_the_last_take` |
//! | `testOffer`, `testAdd`, `testAddAll5`, `testPut` | `puts_count_and_never_wait` |
//! | `testPutWithTake`, `testTimedOffer` | `puts_do_not_wait_for_consumers` |
//! | `testTake` | `takes_in_the_order_of_instants` |
//! | `testBlockingTake` | `a_blocked_take_ends_when_the_queue_is_closed` (threads are not interrupted in Rust) |
//! | `testPoll` | `poll_hands_over_what_is_due_and_then_nothing` |
//! | `testTimedPoll0`, `testTimedPoll` | `a_timed_take_ends_with_an_item_or_with_its_patience` |
//! | `testInterruptedTimedPoll` | `a_blocked_timed_take_ends_when_the_queue_is_closed` |
//! | `testPeek`, `testElement`, `testPeekDelayed` | `peek_tells_the_head_due_or_not_and_leaves_it` |
//! | `testRemove`, `testRemoveElement`, `testContains`, `testRemoveAll`, `testRetainAll` | `cancel_takes_out_that_one_item_once` |
//! | `testClear` | `clear_leaves_a_queue_that_works` |
//! | `testToArray`, `testToArray2`, `testIterator`, `testToString` | `for_each_sees_all_items_in_order_and_takes_none` |
//! | `testIteratorRemove` | `cancel_takes_out_that_one_item_once` |
//! | `testPollInExecutor` | `a_take_in_one_thread_sees_a_put_in_another` |
//! | `testDelay` | `nothing_leaves_before_its_delay` |
//! | `testPollDelayed`, `testTimedPollDelayed` | `poll_of_a_delayed_head_hands_over_nothing` |
//! | `testDrainTo`, `testDrainToN` | `drain_due_takes_what_is_due_up_to_the_limit` |
//! | `testDrainToWithActivePut` | `draining_beside_an_active_producer_loses_nothing` |
//! | `testAddAllSelf`, `testNeverContainsNull`, null and capacity arguments | do not compile in Rust, or `a_limit_of_nothing_is_refused` |

#![cfg(not(shuttle))]

mod support;

use std::thread;
use std::time::Duration;

use dwell_time::{Closed, DelayQueue, PutError};
use support::{PATIENCE, await_waiting, hand_driven};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_new_queue_is_empty_and_has_no_limit() {
    for queue in [DelayQueue::<u32>::new(), DelayQueue::default(), DelayQueue::builder().build()] {
        assert!(queue.is_empty());
        assert_eq!(queue.capacity_limit(), None);
        assert_eq!((queue.len(), queue.poll(), queue.peek_due()), (0, None, None));
    }
    assert_eq!(DelayQueue::<u32>::with_capacity_limit(3).capacity_limit(), Some(3));
}

#[test]
fn is_empty_before_the_first_put_and_after_the_last_take() {
    let queue = DelayQueue::new();
    assert!(queue.is_empty());
    queue.put(1, Duration::ZERO).unwrap();
    assert!(!queue.is_empty());
    queue.put(2, Duration::ZERO).unwrap();
    assert_eq!((queue.take(), queue.take()), (Ok(1), Ok(2)));
    assert!(queue.is_empty());
}

#[test]
fn puts_count_and_never_wait() {
    let queue = DelayQueue::new();
    for n in 0..1_000_usize {
        assert_eq!(queue.len(), n);
        match n % 3 {
            0 => queue.put(n, MS * 60_000).unwrap(),
            1 => queue.try_put(n, MS * 60_000).unwrap(),
            _ => queue.put_at(n, queue.now() + MS * 60_000).unwrap(),
        };
    }
    assert_eq!(queue.len(), 1_000);
}

#[test]
fn puts_do_not_wait_for_consumers() {
    let queue = DelayQueue::new();
    let producer = thread::spawn({
        let queue = queue.clone();
        move || {
            (0..4).for_each(|n| {
                queue.put(n, Duration::ZERO).unwrap();
            })
        }
    });
    producer.join().unwrap();
    assert_eq!(queue.len(), 4);
    assert_eq!(queue.take(), Ok(0));
}

#[test]
fn takes_in_the_order_of_instants() {
    let (queue, clock) = hand_driven();
    for n in 0..100_u64 {
        let delay = n * 37 % 100;
        queue.put(delay, MS * u32::try_from(delay).unwrap()).unwrap();
    }
    clock.advance(100);
    for n in 0..100 {
        assert_eq!(queue.take(), Ok(n));
    }
}

#[test]
fn items_of_one_instant_leave_in_the_order_of_their_puts() {
    let queue = DelayQueue::new();
    let at = queue.now();
    (0..1_000).for_each(|n| {
        queue.put_at(n, at).unwrap();
    });
    assert_eq!(queue.drain_due(usize::MAX), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn a_blocked_take_ends_when_the_queue_is_closed() {
    let (queue, _clock) = hand_driven();
    queue.put(1, MS).unwrap();
    let consumers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            thread::spawn(move || queue.take())
        })
        .collect();
    await_waiting(&queue, 3);
    queue.close();
    for consumer in consumers {
        assert_eq!(consumer.join().unwrap(), Err(Closed));
    }
    assert_eq!(queue.drain().len(), 1, "what was not due is there still");
}

#[test]
fn a_blocked_timed_take_ends_when_the_queue_is_closed() {
    let queue = DelayQueue::<u32>::new();
    let consumer = thread::spawn({
        let queue = queue.clone();
        move || queue.take_timeout(PATIENCE)
    });
    await_waiting(&queue, 1);
    queue.close();
    assert_eq!(consumer.join().unwrap(), Err(Closed));
}

#[test]
fn poll_hands_over_what_is_due_and_then_nothing() {
    let queue = DelayQueue::new();
    (0..20).for_each(|n| {
        queue.put(n, Duration::ZERO).unwrap();
    });
    for n in 0..20 {
        assert_eq!(queue.poll(), Some(n));
    }
    assert_eq!(queue.poll(), None);
}

#[test]
fn a_timed_take_ends_with_an_item_or_with_its_patience() {
    let queue = DelayQueue::new();
    queue.put(1, Duration::ZERO).unwrap();
    assert_eq!(queue.take_timeout(Duration::ZERO), Ok(Some(1)));
    assert_eq!(queue.take_timeout(Duration::ZERO), Ok(None));
    let started = queue.now();
    assert_eq!(queue.take_timeout(MS * 5), Ok(None));
    assert!(queue.now() >= started + MS * 5, "not before its patience has ended");
    queue.put(2, MS * 5).unwrap();
    assert_eq!(queue.take_timeout(PATIENCE), Ok(Some(2)));
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn peek_tells_the_head_due_or_not_and_leaves_it() {
    let queue = DelayQueue::new();
    let now = queue.now();
    let later = now + MS * 60_000;
    queue.put_at("later", later).unwrap();
    assert_eq!(queue.peek_due(), Some(later));
    queue.put_at("now", now).unwrap();
    assert_eq!(queue.peek_due(), Some(now));
    assert_eq!((queue.len(), queue.poll()), (2, Some("now")));
    assert_eq!(queue.peek_due(), Some(later));
}

#[test]
fn cancel_takes_out_that_one_item_once() {
    let queue = DelayQueue::new();
    let handles: Vec<_> = (0..100).map(|n| queue.put(n, MS * 60_000).unwrap()).collect();
    for (n, handle) in handles.iter().enumerate().filter(|(n, _)| n % 2 == 1) {
        assert_eq!(queue.cancel(*handle), Some(n));
        assert_eq!(queue.cancel(*handle), None);
        assert!(!queue.reschedule(*handle, MS));
    }
    let left: Vec<_> = queue.drain().into_iter().map(|(_, n)| n).collect();
    assert_eq!(left, (0..100).step_by(2).collect::<Vec<_>>());
    assert_eq!(queue.cancel(handles[0]), None);
}

#[test]
fn clear_leaves_a_queue_that_works() {
    let queue = DelayQueue::new();
    let handle = queue.put(1, Duration::ZERO).unwrap();
    queue.clear();
    assert!(queue.is_empty());
    queue.put(2, Duration::ZERO).unwrap();
    assert_eq!(queue.cancel(handle), None, "handles from before are stale");
    assert_eq!(queue.take(), Ok(2));
}

#[test]
fn for_each_sees_all_items_in_order_and_takes_none() {
    let queue = DelayQueue::new();
    let now = queue.now();
    for n in [5_u32, 1, 4, 2, 3] {
        queue.put_at(n, now + MS * n).unwrap();
    }
    let mut seen = Vec::new();
    queue.for_each(|due, n| seen.push((due, *n)));
    assert_eq!(seen, [1, 2, 3, 4, 5].map(|n| (now + MS * n, n)));
    assert_eq!(queue.len(), 5);
    assert!(format!("{queue:?}").contains("len: 5"));
}

#[test]
fn a_take_in_one_thread_sees_a_put_in_another() {
    let queue = DelayQueue::new();
    let consumer = thread::spawn({
        let queue = queue.clone();
        move || queue.take_timeout(PATIENCE)
    });
    await_waiting(&queue, 1);
    queue.put(7, Duration::ZERO).unwrap();
    assert_eq!(consumer.join().unwrap(), Ok(Some(7)));
}

#[test]
fn nothing_leaves_before_its_delay() {
    let queue = DelayQueue::new();
    for n in 0..30_u32 {
        let delay = MS * (n * 7 % 30);
        queue.put(queue.now() + delay, delay).unwrap();
    }
    for _ in 0..30 {
        let due = queue.take().unwrap();
        assert!(queue.now() >= due);
    }
}

#[test]
fn poll_of_a_delayed_head_hands_over_nothing() {
    let (queue, clock) = hand_driven();
    queue.put(1, MS * 10).unwrap();
    assert_eq!((queue.poll(), queue.drain_due(9)), (None, vec![]));
    clock.advance(9);
    assert_eq!(queue.poll(), None);
    assert_eq!(queue.take_timeout(Duration::ZERO), Ok(None));
    clock.advance(1);
    assert_eq!(queue.poll(), Some(1));
}

#[test]
fn drain_due_takes_what_is_due_up_to_the_limit() {
    let (queue, clock) = hand_driven();
    for n in 0..10_u32 {
        queue.put(n, MS * n).unwrap();
    }
    clock.advance(5);
    assert_eq!(queue.drain_due(0), Vec::<u32>::new());
    assert_eq!(queue.drain_due(4), [0, 1, 2, 3]);
    assert_eq!(queue.drain_due(100), [4, 5]);
    assert_eq!((queue.drain_due(100), queue.len()), (vec![], 4));
    let left: Vec<_> = queue.drain().into_iter().map(|(_, n)| n).collect();
    assert_eq!(left, [6, 7, 8, 9]);
}

#[test]
fn draining_beside_an_active_producer_loses_nothing() {
    let queue = DelayQueue::new();
    let producer = thread::spawn({
        let queue = queue.clone();
        move || {
            (0..10_000_u32).for_each(|n| {
                queue.put(n, Duration::ZERO).unwrap();
            })
        }
    });
    let mut drained = Vec::new();
    while drained.len() < 10_000 {
        // Blocks for the next one, so that the loop does not take processor time from the producer.
        drained.push(queue.take_timeout(PATIENCE).unwrap().expect("the producer is alive"));
        drained.extend(queue.drain_due(100));
    }
    producer.join().unwrap();
    assert_eq!(drained, (0..10_000).collect::<Vec<_>>());
}

#[test]
fn a_closed_queue_refuses_puts_and_gives_the_value_back() {
    let queue = DelayQueue::new();
    queue.put("due", Duration::ZERO).unwrap();
    queue.close();
    queue.close();
    assert!(queue.is_closed());
    assert!(matches!(queue.put("no", MS), Err(PutError::Closed("no"))));
    assert!(matches!(queue.try_put("no", MS), Err(PutError::Closed("no"))));
    assert_eq!(queue.take(), Ok("due"), "what is due is handed over still");
    assert_eq!((queue.take(), queue.take_timeout(PATIENCE)), (Err(Closed), Err(Closed)));
}

#[test]
fn an_instant_that_cannot_be_counted_is_refused() {
    let queue = DelayQueue::new();
    let refused = queue.put(vec![1], Duration::MAX).unwrap_err();
    assert!(refused.to_string().contains("292 years"));
    assert_eq!(refused.into_value(), [1]);
    let handle = queue.put(vec![2], MS * 60_000).unwrap();
    assert!(!queue.reschedule(handle, Duration::MAX));
    assert_eq!(queue.len(), 1);
}

#[test]
fn a_full_queue_refuses_or_lets_the_put_wait() {
    let queue = DelayQueue::with_capacity_limit(2);
    queue.put(1, Duration::ZERO).unwrap();
    queue.put(2, Duration::ZERO).unwrap();
    assert!(matches!(queue.try_put(3, Duration::ZERO), Err(PutError::Full(3))));
    let producer = thread::spawn({
        let queue = queue.clone();
        move || queue.put(3, Duration::ZERO).map(drop)
    });
    for expected in 1..=3 {
        assert_eq!(queue.take_timeout(PATIENCE), Ok(Some(expected)));
    }
    producer.join().unwrap().unwrap();
}

#[test]
fn a_put_that_waits_for_room_ends_when_the_queue_is_closed() {
    let queue = DelayQueue::with_capacity_limit(1);
    queue.put(1, MS * 60_000).unwrap();
    let producer = thread::spawn({
        let queue = queue.clone();
        move || queue.put(2, Duration::ZERO)
    });
    queue.close();
    assert!(matches!(producer.join().unwrap(), Err(PutError::Closed(2))));
}

#[test]
#[should_panic = "room for one item"]
fn a_limit_of_nothing_is_refused() {
    DelayQueue::<u32>::with_capacity_limit(0);
}
