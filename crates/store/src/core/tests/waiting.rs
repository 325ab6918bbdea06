//! Waiting takes, and when their owner is woken.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dwell_model::{Pause, Setting, SettingChange, Settings, Wake};

use super::cold::{evict, snapshot};
use super::*;
use crate::Error;
use crate::core::WaiterId;

impl Rig {
    fn wait(&mut self, id: u64, take: Take, now: Now) {
        self.call(|core, log| core.wait(WaiterId(id), take, now, log)).unwrap();
    }

    fn serve(&mut self, now: Now) -> Vec<TakeAnswer<Bytes>> {
        let answers = self.call(|core, log| core.serve(now, log));
        self.core.check_served(now);
        answers
    }

    fn configure(&mut self, setting: Setting, now: Now) {
        let changes = vec![SettingChange::Set(setting)];
        self.call(|core, log| core.configure(&queue("q"), changes, now, log)).unwrap();
    }
}

fn put_many(rig: &mut Rig, name: &str, count: usize) {
    for _ in 0..count {
        rig.put(put_to(name), now(0)).unwrap();
    }
}

fn waiting(ms: u64) -> Take {
    Take::from(queue("q")).wait_ms(ms)
}

/// The number of messages that changed their standing after the first `before` facts.
fn standings(rig: &Rig, before: usize) -> usize {
    rig.log.0[before..]
        .iter()
        .filter(|told| matches!(told, LoggedFact::Record(Record::Stands { .. }, _)))
        .count()
}

/// Serves until nothing is left to do now; returns the number of messages that changed their standing in each
/// serve, and the answers.
fn serve_in_turns(rig: &mut Rig, now: Now) -> (Vec<usize>, Vec<(u64, usize)>) {
    let (mut turns, mut answered) = (Vec::new(), Vec::new());
    while rig.core.next_wake().is_reached(now) {
        assert!(turns.len() < 100, "it goes on for ever");
        let before = rig.log.0.len();
        let answers = rig.call(|core, log| core.serve(now, log));
        answered.extend(ids(&answers));
        turns.push(standings(rig, before));
    }
    rig.core.check_served(now);
    (turns, answered)
}

fn ids(answers: &[TakeAnswer<Bytes>]) -> Vec<(u64, usize)> {
    answers.iter().map(|(id, answer)| (id.0, answer.as_ref().unwrap().len())).collect()
}

#[test]
fn an_idle_core_never_wakes() {
    let mut rig = Rig::new();
    rig.put(put_to("q").after_ms(10), now(0)).unwrap();
    rig.put(put_to("q"), now(0)).unwrap();
    rig.take(Take::from(queue("q")), now(0)).unwrap();
    assert_eq!(rig.serve(now(0)), []);
    assert_eq!(rig.core.next_wake(), Wake::default());
}

#[test]
fn wakes_for_the_head_the_lease_the_pause_and_the_end_of_the_wait_and_for_nothing_else() {
    let mut rig = Rig::new();
    rig.wait(1, waiting(10_000), now(0));
    assert_eq!(rig.serve(now(0)), []);
    assert_eq!(rig.core.next_wake(), Wake { wall: None, mono_ms: Some(10_000) });
    rig.put(put_to("q").after_ms(600), now(0)).unwrap();
    rig.put(put_to("other").after_ms(5), now(0)).unwrap();
    assert_eq!(rig.serve(now(0)), []);
    assert_eq!(rig.core.next_wake(), Wake { wall: Some(at(600)), mono_ms: Some(10_000) });
    rig.configure(Setting::Pause(Pause::Until(at(900))), now(1));
    assert_eq!(rig.serve(now(1)), []);
    assert_eq!(rig.core.next_wake().wall, Some(at(900)));
    assert_eq!(rig.serve(now(899)), []);
    let served = rig.serve(now(900));
    assert_eq!(ids(&served), [(1, 1)]);
    assert_eq!(rig.core.next_wake(), Wake::default());

    rig.wait(2, waiting(60_000), now(901));
    assert_eq!(rig.serve(now(901)), []);
    assert_eq!(rig.core.next_wake(), Wake { wall: None, mono_ms: Some(30_900) }, "the lease");
    assert_eq!(ids(&rig.serve(now(30_900))), [(2, 1)]);
    rig.wait(3, waiting(5), now(30_901));
    assert_eq!(ids(&rig.serve(now(30_906))), [(3, 0)]);
}

#[test]
fn serves_in_the_order_of_coming_also_before_a_take_that_does_not_wait() {
    let mut rig = Rig::new();
    for id in [5, 3, 4] {
        rig.wait(id, waiting(1_000), now(0));
    }
    rig.put(put_to("q"), now(1)).unwrap();
    rig.put(put_to("q"), now(1)).unwrap();
    assert_eq!(rig.take(Take::from(queue("q")), now(1)).unwrap(), [], "two came earlier");
    assert_eq!(ids(&rig.serve(now(1))), [(5, 1), (3, 1)]);
    assert_eq!(ids(&rig.core.dismiss_all()), [(4, 0)]);
    assert!(!rig.core.has_waiters());
    rig.core.check();
}

#[test]
fn of_several_queues_the_one_whose_take_came_first_is_served_first() {
    let mut rig = Rig::new();
    rig.wait(1, Take::from(queue("late")).wait_ms(1_000), now(0));
    rig.wait(2, Take::from(queue("soon")).wait_ms(1_000), now(0));
    rig.put(put_to("soon").after_ms(10), now(0)).unwrap();
    rig.put(put_to("late").after_ms(20), now(0)).unwrap();
    assert_eq!(rig.serve(now(0)), []);
    assert_eq!(ids(&rig.serve(now(30))), [(1, 1), (2, 1)]);
}

/// Crash story: 1. A take waits on two queues. 2. Messages of both become due at once, and that of the first
/// cannot be read. 3. The take was refused, although the other one was available.
#[test]
fn a_take_that_waits_passes_over_a_queue_whose_next_message_cannot_be_read() {
    for other in ["due", "nothing", "no lease"] {
        let limits = Limits { leased_per_queue: 1, ..Limits::default() };
        let mut rig = Rig::with(limits);
        rig.put(put_to("q").after_ms(10), now(0)).unwrap();
        snapshot(&mut rig);
        evict(&mut rig, 0);
        rig.log.1.as_mut().unwrap().barred = Some(queue("q"));
        match other {
            "due" => drop(rig.put(put_to("r").after_ms(10), now(0)).unwrap()),
            "no lease" => {
                put_many(&mut rig, "r", 2);
                assert_eq!(rig.take(Take::from(queue("r")), now(0)).unwrap().len(), 1);
            }
            _ => {}
        }
        rig.wait(1, Take::from_all([queue("q"), queue("r")]).wait_ms(1_000), now(0));
        assert_eq!(rig.serve(now(0)), []);
        let served = rig.serve(now(10));
        if other == "due" {
            assert_eq!(ids(&served), [(1, 1)]);
        } else {
            let [(_, Err(refused))] = served.as_slice() else { panic!("{other}: {served:?}") };
            assert_eq!(refused.code(), "unavailable", "{other}");
        }
    }
}

#[test]
fn a_queue_that_only_had_waiters_leaves_the_listing() {
    let mut rig = Rig::new();
    rig.wait(1, Take::from_all([queue("a"), queue("b"), queue("a")]).wait_ms(100), now(0));
    let stats = rig.call(|core, log| core.queues(None, 9, now(0), log));
    assert_eq!(stats.iter().map(|stats| stats.waiting).collect::<Vec<_>>(), [1, 1]);
    assert!(rig.call(|core, log| core.forget(WaiterId(1), now(1), log)));
    assert_eq!(rig.call(|core, log| core.queues(None, 9, now(1), log)), vec![]);
    assert!(!rig.call(|core, log| core.forget(WaiterId(1), now(1), log)));
}

#[test]
fn what_a_forgotten_take_was_about_to_get_goes_back_at_once() {
    let mut rig = Rig::new();
    rig.wait(1, waiting(1_000), now(0));
    rig.put(put_to("q"), now(1)).unwrap();
    assert_eq!(rig.take(Take::from(queue("q")), now(1)).unwrap(), []);
    assert!(rig.call(|core, log| core.forget(WaiterId(1), now(2), log)));
    let taken = rig.take(Take::from(queue("q")), now(3)).unwrap();
    assert_eq!((taken[0].message.standing.counts.takes, taken[0].message.standing.attempts), (2, 0));
    assert_eq!(rig.serve(now(3)), []);
}

#[test]
fn what_goes_back_wakes_the_next() {
    let mut rig = Rig::new();
    rig.put(put_to("q"), now(0)).unwrap();
    let taken = rig.take(Take::from(queue("q")), now(0)).unwrap();
    rig.wait(1, waiting(1_000), now(0));
    assert_eq!(rig.serve(now(0)), []);
    rig.call(|core, log| core.give_back(&[taken[0].receipt.clone()], now(1), log));
    assert_eq!(ids(&rig.serve(now(1))), [(1, 1)]);
}

/// Crash story: 1. An operator lists a lease, and its holder disconnects before the answer is written. 2. Another
/// consumer takes the message. 3. The operator ends the lease that was listed.
#[test]
fn a_lease_that_is_ended_late_is_not_that_of_the_next_holder() {
    let mut rig = Rig::new();
    let id = rig.put(put_to("q"), now(0)).unwrap().id;
    let gone = rig.take(Take::from(queue("q")), now(0)).unwrap().remove(0);
    let listed = crate::LeaseRef { id, takes: gone.message.standing.counts.takes };
    rig.call(|core, log| core.give_back(&[gone.receipt], now(1), log));
    let held = rig.take(Take::from(queue("q")), now(2)).unwrap().remove(0);
    let ended = rig.call(|core, log| core.expire_lease(&queue("q"), vec![listed], now(3), log)).remove(0);
    assert_eq!(ended.unwrap_err().code(), "lease_changed");
    rig.settle(&held.receipt, Action::Ack, now(4)).unwrap();
}

#[test]
fn a_pause_that_has_ended_does_not_hold_again_after_a_step_back() {
    let mut rig = Rig::new();
    rig.configure(Setting::Pause(Pause::Until(at(100))), now(0));
    rig.wait(1, waiting(1_000), now(0));
    rig.serve(now(150));
    let stepped = Now { wall: at(50), mono_ms: 151 };
    rig.put(put_to("q"), stepped).unwrap();
    assert_eq!(ids(&rig.serve(stepped)), [(1, 1)]);
    let reopened = Now { wall: at(50), mono_ms: 0 };
    let stats = rig.reopened(reopened).call(|core, log| core.stats(&queue("q"), reopened, log)).unwrap();
    assert!(stats.own.is_empty(), "nor after a restart: {:?}", stats.own);
}

#[test]
fn a_default_pause_that_holds_again_after_a_step_back_is_waited_for_again() {
    let defaults = Settings { pause: Pause::Until(at(100)), ..Settings::default() };
    let mut rig = Rig::with(Limits { defaults, ..Limits::default() });
    rig.wait(1, waiting(1_000), now(0));
    rig.serve(now(150));
    let stepped = Now { wall: at(50), mono_ms: 151 };
    rig.put(put_to("q"), stepped).unwrap();
    assert_eq!(rig.serve(stepped), []);
    assert_eq!(rig.core.next_wake().wall, Some(at(100)));
    assert_eq!(ids(&rig.serve(Now { wall: at(100), mono_ms: 201 })), [(1, 1)]);
}

/// Crash story: 1. A call on another queue sees a time at which a message is due. 2. Before the waiting takes
/// are served the clock steps back. 3. The message is ready, and the alarm of its queue is set to an instant
/// that is far off again.
#[test]
fn what_was_due_before_the_clock_stepped_back_is_handed_to_a_take_that_waits() {
    let mut rig = Rig::new();
    rig.put(put_to("q").after_ms(140), now(0)).unwrap();
    rig.wait(1, waiting(1_000), now(0));
    assert_eq!(rig.serve(now(0)), []);
    rig.put(put_to("other"), now(150)).unwrap();
    let stepped = Now { wall: at(50), mono_ms: 151 };
    rig.put(put_to("other"), stepped).unwrap();
    assert_eq!(ids(&rig.serve(stepped)), [(1, 1)]);
}

#[test]
fn too_many_waiting_are_refused() {
    let config = CoreConfig { waiting_limit: 1, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    rig.wait(1, waiting(10), now(0));
    let refused = rig.call(|core, log| core.wait(WaiterId(2), waiting(10), now(0), log));
    assert_eq!(refused, Err(Error::TooManyWaiting { limit: 1 }));
}

#[test]
fn a_take_that_waits_for_a_lease_to_end_is_woken_by_nothing_else() {
    let mut rig = Rig::with(Limits { leased: 1, ..Limits::default() });
    rig.put(put_to("elsewhere"), now(0)).unwrap();
    let held = rig.take(Take::from(queue("elsewhere")).lease_ms(500), now(0)).unwrap();
    for (id, name) in [(1, "late"), (2, "soon")] {
        rig.wait(id, Take::from(queue(name)).lease_ms(60_000).wait_ms(10_000), now(id));
    }
    for name in ["soon", "late", "late"] {
        rig.put(put_to(name), now(3)).unwrap();
        assert_eq!(rig.serve(now(3)), []);
    }
    let would_wait = Take::from(queue("late")).wait_ms(1);
    assert_eq!(rig.take(would_wait, now(4)), Ok(vec![]), "it is to wait too");
    assert_eq!(rig.serve(now(4)), []);
    assert_eq!(rig.core.next_wake(), Wake { wall: None, mono_ms: Some(500) }, "the lease that ends first");
    assert_eq!(rig.serve(now(499)), []);
    assert_eq!(ids(&rig.serve(now(500))), [(1, 1)], "who came first, whatever became due first");
    assert_eq!(rig.core.next_wake(), Wake { wall: None, mono_ms: Some(10_002) });
    assert_eq!(rig.settle(&held[0].receipt, Action::Ack, now(501)), Err(Error::LeaseLost));
    assert_eq!(rig.serve(now(501)), []);
    assert_eq!(ids(&rig.serve(now(10_002))), [(2, 0)]);
    assert_eq!(rig.core.next_wake(), Wake::default());
}

#[test]
fn a_lease_that_ends_lets_the_queue_go_on_that_its_own_cap_holds_up() {
    let mut rig = Rig::with(Limits { leased_per_queue: 1, ..Limits::default() });
    rig.put(put_to("q"), now(0)).unwrap();
    let held = rig.take(Take::from(queue("q")).lease_ms(500), now(0)).unwrap();
    rig.wait(1, waiting(10_000), now(0));
    rig.put(put_to("q"), now(1)).unwrap();
    assert_eq!(rig.serve(now(1)), []);
    assert_eq!(rig.core.next_wake(), Wake { wall: None, mono_ms: Some(500) });
    rig.settle(&held[0].receipt, Action::Ack, now(2)).unwrap();
    assert!(rig.core.next_wake().is_reached(now(2)));
    assert_eq!(ids(&rig.serve(now(2))), [(1, 1)]);
    // A take that is forgotten leaves nothing behind.
    rig.put(put_to("q"), now(3)).unwrap();
    rig.wait(2, waiting(10_000), now(3));
    assert_eq!(rig.serve(now(3)), []);
    assert!(rig.call(|core, log| core.forget(WaiterId(2), now(4), log)));
    assert_eq!(rig.core.next_wake(), Wake::default());
}

#[test]
fn leases_that_run_out_together_do_so_in_slices_and_others_are_served_in_between() {
    let config = CoreConfig { lapsed_a_call: 4, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    put_many(&mut rig, "q", 10);
    assert_eq!(rig.take(Take::from(queue("q")).max(10).lease_ms(1_000), now(0)).unwrap().len(), 10);
    rig.wait(1, waiting(60_000), now(0));
    rig.wait(2, Take::from(queue("other")).wait_ms(60_000), now(0));
    assert_eq!(rig.serve(now(0)), []);
    rig.put(put_to("other").after_ms(1_000), now(0)).unwrap();
    let late = now(1_000);
    let before = rig.log.0.len();
    assert_eq!(ids(&rig.call(|core, log| core.serve(late, log))), [(2, 1)], "another queue's take");
    assert_eq!(standings(&rig, before), 4 + 1);
    assert!(rig.core.next_wake().is_reached(late));
    // A call that names the queue is made when all have run out.
    assert!(rig.core.has_lapsed(&queue("q"), late) && !rig.core.has_lapsed(&queue("other"), late));
    let before = rig.log.0.len();
    assert!(rig.call(|core, log| core.lapse_some(&queue("q"), late, log)));
    assert_eq!(standings(&rig, before), 4);
    let before = rig.log.0.len();
    assert_eq!(ids(&rig.serve(late)), [(1, 1)]);
    assert_eq!(standings(&rig, before), 2 + 1);
    assert!(!rig.core.has_lapsed(&queue("q"), late));
    assert!(!rig.call(|core, log| core.lapse_some(&queue("q"), late, log)));
    let counts = rig.call(|core, log| core.stats(&queue("q"), late, log)).unwrap().counts;
    assert_eq!((counts.ready, counts.leased), (9, 1));
}

#[test]
fn what_was_rescheduled_to_one_instant_comes_due_in_slices() {
    let config = CoreConfig { lapsed_a_call: 4, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    for _ in 0..100 {
        let id = rig.put(put_to("q").after_ms(500), now(0)).unwrap().id;
        let moves = vec![(crate::Target::Id(id), When::AfterMs(1_000))];
        rig.call(|core, log| core.reschedule(&queue("q"), moves, now(0), log)).remove(0).unwrap();
    }
    rig.wait(1, waiting(60_000), now(0));
    rig.wait(2, Take::from(queue("other")).wait_ms(60_000), now(0));
    assert_eq!(rig.serve(now(0)), []);
    rig.put(put_to("other").after_ms(1_000), now(0)).unwrap();
    let late = now(1_000);
    assert_eq!(ids(&rig.call(|core, log| core.serve(late, log))), [(2, 1)], "another queue's take");
    let mut slices = 0;
    loop {
        // A call that names the queue is made when all are moved.
        let is_more = rig.call(|core, log| core.lapse_some(&queue("q"), late, log));
        let answers = rig.call(|core, log| core.serve(late, log));
        if !answers.is_empty() {
            assert_eq!(ids(&answers), [(1, 1)]);
            break;
        }
        slices += usize::from(is_more);
        assert!(slices < 20, "it comes to an end");
    }
    assert!(slices >= 2, "a hundred are {slices} slices");
    let counts = rig.call(|core, log| core.stats(&queue("q"), late, log)).unwrap().counts;
    assert_eq!((counts.ready, counts.scheduled, counts.leased), (99, 0, 1));
}

#[test]
fn a_slice_of_leases_that_run_out_records_only_so_many_bytes() {
    let config = CoreConfig { lapsed_bytes_a_call: 10_000, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    put_many(&mut rig, "q", 20);
    let taken = rig.take(Take::from(queue("q")).max(20), now(0)).unwrap();
    let error = Some("x".repeat(4_000).into());
    for delivery in taken {
        let retry = Action::Retry { after_ms: Some(0), error: error.clone(), priority: None };
        rig.settle(&delivery.receipt, retry, now(0)).unwrap();
    }
    rig.take(Take::from(queue("q")).max(20).lease_ms(1_000), now(0)).unwrap();
    let mut slices = 1;
    while rig.call(|core, log| core.lapse_some(&queue("q"), now(1_000), log)) {
        let before = rig.log.0.len();
        assert!(rig.call(|core, log| core.lapse_some(&queue("q"), now(1_000), log)), "all calls share it");
        assert_eq!(standings(&rig, before), 0);
        assert_eq!(rig.serve(now(1_000)), []);
        slices += 1;
    }
    assert_eq!(slices, 7, "three in each, and two in the last");
    // Nor does a full store process everything at once that has run out elsewhere.
    let limits = Limits { leased: 10, ..Limits::default() };
    let mut rig = Rig::configured(CoreConfig { lapsed_a_call: 3, ..CoreConfig::new(limits, 0) });
    put_many(&mut rig, "q", 10);
    rig.take(Take::from(queue("q")).max(10).lease_ms(1_000), now(0)).unwrap();
    put_many(&mut rig, "other", 9);
    let before = rig.log.0.len();
    assert_eq!(rig.take(Take::from(queue("other")).max(3), now(1_000)).unwrap().len(), 3);
    assert_eq!(standings(&rig, before), 3 + 3);
    assert_eq!(
        rig.take(Take::from(queue("other")).max(9), now(1_000)).unwrap().len(),
        6,
        "and all of it by and by"
    );
}

#[test]
fn a_queue_that_the_cap_held_up_goes_on_when_more_of_its_leases_run_out_than_one_slice_does() {
    // On a thread: the test shows that it ends.
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let limits = Limits { leased: 10, ..Limits::default() };
        let mut rig = Rig::configured(CoreConfig { lapsed_a_call: 3, ..CoreConfig::new(limits, 0) });
        put_many(&mut rig, "q", 11);
        rig.take(Take::from(queue("q")).max(10).lease_ms(1_000), now(0)).unwrap();
        rig.wait(1, waiting(60_000), now(0));
        assert_eq!(rig.serve(now(0)), []);
        tell.send(serve_in_turns(&mut rig, now(1_000))).unwrap();
    });
    let (turns, answered) = told.recv_timeout(Duration::from_secs(30)).expect("it serves, and returns");
    assert_eq!((turns, answered), (vec![3, 3, 3, 1 + 1], vec![(1, 1)]));
}

#[test]
fn leases_of_another_queue_of_a_take_that_waits_run_out_in_slices_too() {
    let config = CoreConfig { lapsed_a_call: 4, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    put_many(&mut rig, "b", 10);
    rig.take(Take::from(queue("b")).max(10).lease_ms(1_000), now(0)).unwrap();
    rig.wait(1, Take::from_all([queue("a"), queue("b")]).wait_ms(60_000), now(0));
    assert_eq!(rig.serve(now(0)), []);
    put_many(&mut rig, "a", 2);
    let late = now(1_000);
    // A later take gets nothing before it is known what the other will get.
    let before = rig.log.0.len();
    let taken = rig.call(|core, log| core.take(&Take::from(queue("a")), late, log));
    assert!(standings(&rig, before) <= 4, "and {taken:?}");
    assert_eq!(taken, Ok(vec![]));
    assert!(rig.core.gave_up(), "it is to come again");
    let (turns, answered) = serve_in_turns(&mut rig, late);
    assert!(turns.iter().all(|count| *count <= 4 + 1), "{turns:?}");
    assert_eq!(answered, [(1, 1)]);
    assert_eq!(rig.take(Take::from(queue("a")).max(9), late).unwrap().len(), 2, "b's came first");
}

#[test]
fn all_queues_whose_leases_run_out_together_share_a_slice() {
    let config = CoreConfig { lapsed_a_call: 4, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    for name in ["a", "b", "c", "d"] {
        put_many(&mut rig, name, 3);
        rig.take(Take::from(queue(name)).max(3).lease_ms(1_000), now(0)).unwrap();
    }
    for (id, name) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
        rig.wait(id, Take::from(queue(name)).max(1).wait_ms(60_000), now(0));
    }
    assert_eq!(rig.serve(now(0)), []);
    let (turns, answered) = serve_in_turns(&mut rig, now(1_000));
    assert_eq!(turns.len(), 3, "{turns:?}");
    assert!(turns.iter().all(|count| *count <= 4 + 2), "{turns:?}");
    assert_eq!(answered, [(1, 1), (2, 1), (3, 1), (4, 1)]);
}

#[test]
fn a_wait_that_ends_while_leases_run_out_is_answered_with_what_these_bring() {
    let config = CoreConfig { lapsed_a_call: 4, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    put_many(&mut rig, "q", 10);
    rig.take(Take::from(queue("q")).max(10).lease_ms(1_000), now(0)).unwrap();
    rig.wait(1, waiting(1_000), now(0));
    assert_eq!(rig.serve(now(0)), []);
    let (turns, answered) = serve_in_turns(&mut rig, now(1_000));
    assert_eq!((turns, answered), (vec![4, 4, 2 + 1], vec![(1, 1)]));
    // The messages of a paused queue do not prevent a wait from ending.
    let mut rig = Rig::configured(rig.config.clone());
    put_many(&mut rig, "q", 10);
    rig.take(Take::from(queue("q")).max(10).lease_ms(1_000), now(0)).unwrap();
    rig.configure(Setting::Pause(Pause::Indefinite), now(0));
    rig.wait(1, waiting(1_000), now(0));
    assert_eq!(rig.serve(now(0)), []);
    assert_eq!(serve_in_turns(&mut rig, now(1_000)).1, [(1, 0)]);
}

#[test]
fn a_serve_hands_out_about_as_much_as_one_call_may() {
    let mut rig = Rig::with(Limits { batch: 4, ..Limits::default() });
    for id in 1..=5 {
        rig.wait(id, waiting(60_000).max(3), now(0));
    }
    assert_eq!(rig.serve(now(0)), []);
    put_many(&mut rig, "q", 15);
    // Nor does a later take get anything before them.
    assert_eq!(rig.call(|core, log| core.take(&Take::from(queue("q")), now(1), log)), Ok(vec![]));
    assert!(rig.core.gave_up(), "it is to come again");
    let (turns, answered) = serve_in_turns(&mut rig, now(1));
    assert_eq!(turns, [0, 6, 3], "six were handed out when the take came");
    assert_eq!(answered, [(1, 3), (2, 3), (3, 3), (4, 3), (5, 3)]);
    assert_eq!(rig.take(Take::from(queue("q")), now(1)), Ok(vec![]));
}

#[test]
fn a_page_of_queues_lets_no_more_leases_run_out_than_a_slice() {
    let config = CoreConfig { lapsed_a_call: 4, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    for at in 0..10 {
        let name = format!("q{at}");
        rig.put(put_to(&name), now(0)).unwrap();
        rig.take(Take::from(queue(&name)).lease_ms(1_000), now(0)).unwrap();
    }
    let mut turns = Vec::new();
    let page = loop {
        let before = rig.log.0.len();
        let page = rig.call(|core, log| core.queues(None, 9, now(1_000), log));
        turns.push(standings(&rig, before));
        if !rig.core.gave_up() {
            break page;
        }
        assert_eq!(rig.serve(now(1_000)), []);
    };
    assert_eq!(turns, [4, 4, 1]);
    assert!(page.len() == 9 && page.iter().all(|stats| stats.counts.ready == 1));
}

#[test]
fn a_store_at_its_cap_of_leases_moves_nothing_of_a_queue_whose_lease_ran_out() {
    let limits = Limits { leased: 1, ..Limits::default() };
    let mut rig = Rig::configured(CoreConfig { lapsed_a_call: 10, ..CoreConfig::new(limits, 0) });
    rig.put(put_to("z"), now(0)).unwrap();
    assert_eq!(rig.take(Take::from(queue("z")).lease_ms(1_000), now(0)).unwrap().len(), 1);
    let Rig { core, log, .. } = &mut rig;
    for _ in 0..1_000 {
        let id = core.put(vec![put_to("z").after_ms(5_000)], now(0), log).remove(0).unwrap().id;
        let moves = vec![(crate::Target::Id(id), When::AfterMs(10_000))];
        core.reschedule(&queue("z"), moves, now(0), log).remove(0).unwrap();
    }
    rig.put(put_to("x"), now(0)).unwrap();
    let late = now(60_000);
    assert_eq!(rig.take(Take::from(queue("x")), late).unwrap().len(), 1, "the lease of the other is over");
    let z = rig.core.queues.find(&queue("z")).unwrap();
    assert!(
        rig.core.queues.get(z).scheduled.is_due_timed(late.wall),
        "they are moved in slices when somebody asks"
    );
    let counts = rig.call(|core, log| core.stats(&queue("z"), late, log)).unwrap().counts;
    assert_eq!((counts.ready, counts.scheduled, counts.leased), (1_001, 0, 0));
}

#[test]
fn a_close_looks_at_each_queue_once() {
    const QUEUES: usize = 200;
    const LEASES: usize = 2 * QUEUES;
    let config = CoreConfig { lapsed_a_call: 4, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    for at in 0..QUEUES {
        let name = format!("q{at}");
        put_many(&mut rig, &name, 3);
        let takes = [Take::from(queue(&name)).lease_ms(1_000), Take::from(queue(&name)).max(2).session()];
        takes.into_iter().for_each(|take| drop(rig.take(take, now(0)).unwrap()));
    }
    // One queue is removed meanwhile: its pause has ended. Leases run out before, and in one of the others
    // later, between two slices.
    rig.configure(Setting::Pause(Pause::Until(at(1_020))), now(0));
    rig.put(put_to("q7"), now(0)).unwrap();
    rig.take(Take::from(queue("q7")).lease_ms(1_010), now(0)).unwrap();
    let (mut slices, mut before) = (0, rig.log.0.len());
    while rig.call(|core, log| core.give_back_session_leases(now(1_000 + slices), log)) {
        slices += 1;
        assert!(standings(&rig, before) <= 4, "a slice is no longer than others");
        before = rig.log.0.len();
    }
    assert!(slices >= (QUEUES + LEASES) as u64 / 4, "it took {slices}");
    let looked = rig.core.looks_for_lapsed;
    assert!(looked <= QUEUES + LEASES + 2 * slices as usize, "queues were looked at {looked} times");
    let after = now(1_000 + slices);
    for at in 0..QUEUES {
        let name = queue(&format!("q{at}"));
        let counts = rig.call(|core, log| core.stats(&name, after, log)).unwrap().counts;
        assert_eq!((counts.ready, counts.leased), (if at == 7 { 4 } else { 3 }, 0));
    }
}

#[test]
fn waits_that_end_together_end_in_slices() {
    const NAMES: usize = 64;
    let mut rig = Rig::with(Limits { batch: NAMES, ..Limits::default() });
    let names: Vec<QueueName> = (0..NAMES).map(|at| queue(&format!("q{at}"))).collect();
    for id in 0..100 {
        let take = Take::from_all(names.clone()).wait_ms(1_000);
        rig.core.wait(WaiterId(id), take, now(0), &mut rig.log).unwrap();
    }
    assert_eq!(rig.serve(now(0)), []);
    let late = now(1_000);
    let first = rig.call(|core, log| core.serve(late, log));
    assert_eq!(ids(&first), [(0, 0)], "as many names as one call may have items");
    assert!(rig.core.next_wake().is_reached(late), "it is to go on");
    let (turns, answered) = serve_in_turns(&mut rig, late);
    assert_eq!((turns.len(), answered), (99, (1..100).map(|id| (id, 0)).collect()));
    assert!(!rig.core.has_waiters());
}
