//! Lists and counts of queues of which some messages are cold: what they read, and what they let expire.

use super::*;

fn list(rig: &mut Rig, name: &str, state: StateKind, at: u64) -> Result<usize> {
    let page = rig.call(|core, log| core.list(&queue(name), state, None, 9, now(at), log));
    page.map(|page| page.messages.len())
}

#[test]
fn a_list_reads_nothing_where_nothing_of_it_is_cold() {
    let mut rig = Rig::new();
    for delay in [0, 100] {
        rig.put(put_to("q").after_ms(delay), now(0)).unwrap();
    }
    assert_eq!(rig.take(Take::from(queue("q")), now(0)).unwrap().len(), 1);
    snapshot(&mut rig);
    evict(&mut rig, 0);
    assert_eq!((rig.core.cold_len(), rig.core.leased_len()), (1, 1));
    rig.put(put_to("other").after_ms(100), now(0)).unwrap();
    rig.log.1.as_mut().unwrap().is_rotten = true;
    assert_eq!(list(&mut rig, "q", StateKind::Leased, 1), Ok(1));
    assert_eq!(list(&mut rig, "other", StateKind::Scheduled, 1), Ok(1));
    assert_eq!(list(&mut rig, "q", StateKind::Scheduled, 1), Err(rotten()));
    rig.log.1.as_mut().unwrap().is_rotten = false;
    assert_eq!(list(&mut rig, "q", StateKind::Scheduled, 1), Ok(1));
}

#[test]
fn a_list_lets_what_is_cold_expire_only_where_some_of_its_queue_may() {
    let mut rig = behind();
    assert_eq!(list(&mut rig, "other", StateKind::Ready, 60), Ok(1));
    assert!(rig.core.is_behind(), "a storm in one queue does not delay the next");
    assert_eq!(list(&mut rig, "q", StateKind::Ready, 60), Ok(1));
    assert!(!rig.core.is_behind());
}

/// Crash story: 1. Many messages expire in one queue. 2. Another one has cold messages too. 3. Its calls
/// processed all expired messages, at once, or waited until that was done.
#[test]
fn what_has_expired_in_one_queue_is_nothing_to_another_that_has_cold_messages() {
    let mut rig = Rig::new();
    for i in 0..40 {
        rig.put(Put { expires: Some(at(50)), ..put_to("q").after_ms(10) }, now(0)).unwrap();
        // The last of all expires with them.
        let expires = (i == 39).then(|| at(50));
        rig.put(Put { expires, ..put_to("other").after_ms(10) }, now(0)).unwrap();
    }
    snapshot(&mut rig);
    evict(&mut rig, 0);
    assert!(!rig.call(|core, log| core.catch_up(now(60), log)));
    let is_behind =
        |rig: &mut Rig, name: &str| rig.call(|core, log| core.is_behind_in(&queue(name), now(60), log));
    assert!(is_behind(&mut rig, "q") && is_behind(&mut rig, "other"), "one has expired in either");
    while is_behind(&mut rig, "other") {
        rig.call(|core, log| core.catch_up(now(60), log));
    }
    assert_eq!(count(&mut rig, "other", 60), (39, 1));
    let mut rig = Rig::new();
    for _ in 0..40 {
        rig.put(Put { expires: Some(at(50)), ..put_to("q").after_ms(10) }, now(0)).unwrap();
        rig.put(put_to("other").after_ms(10), now(0)).unwrap();
    }
    snapshot(&mut rig);
    evict(&mut rig, 0);
    assert!(!rig.call(|core, log| core.catch_up(now(60), log)));
    assert!(is_behind(&mut rig, "q") && !is_behind(&mut rig, "other"));
    assert_eq!(list(&mut rig, "other", StateKind::Ready, 60), Ok(9));
    assert_eq!(rig.call(|core, log| core.purge(&queue("other"), now(60), log)), Ok(40));
    assert!(rig.core.is_behind() && is_behind(&mut rig, "q"), "nothing else was seen to");
    assert_eq!(rig.call(|core, log| core.purge(&queue("q"), now(60), log)), Ok(0));
    assert!(!is_behind(&mut rig, "q"), "it is seen to for its own call");
}
