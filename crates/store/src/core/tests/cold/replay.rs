//! Records that are replayed into a core with cold messages, among them those of earlier versions.

use super::*;

/// A core that looks at two dead messages per call, with six in `q`, all cold, that died at 1 to 6.
fn with_dead() -> (Rig, Checkpoint, Vec<MessageId>) {
    let config = CoreConfig { bulk_per_call: 2, ..CoreConfig::new(Limits::default(), 7) };
    let mut rig = Rig::configured(config);
    let mut ids = Vec::new();
    for at in 1..7 {
        ids.push(rig.put(put_to("q"), now(0)).unwrap().id);
        let taken = rig.take(Take::from(queue("q")), now(at)).unwrap();
        rig.settle(&taken[0].receipt, Action::Bury { reason: None, priority: None }, now(at)).unwrap();
    }
    let checkpoint = snapshot(&mut rig);
    evict(&mut rig, 0);
    assert_eq!(rig.core.cold_len(), 6);
    (rig, checkpoint, ids)
}

#[test]
fn a_sweep_goes_on_behind_the_last_one_that_it_looked_at_though_cold_ones_behind_it_are_known() {
    let (mut rig, _, ids) = with_dead();
    for id in &ids[..3] {
        let got =
            rig.call(|core, log| core.get(&queue("q"), vec![crate::Target::Id(*id)], false, now(9), log));
        assert!(got[0].is_ok());
    }
    assert_eq!((rig.core.cold_len(), rig.core.len()), (3, 3));
    assert_eq!(rig.discard(&queue("q"), Selection::All, now(9)).unwrap().done, 6);
    assert_eq!(rig.core.others_len().1, 0, "nothing is left of the queue");
}

#[test]
fn an_old_record_of_a_revive_means_all_that_are_dead() {
    let (rig, checkpoint, _) = with_dead();
    let mut again = recovered(&rig, &checkpoint);
    let toy = again.log.1.as_mut().unwrap();
    let revived = Record::Revived { queue: queue("q"), due: at(90), wall: at(9) };
    again.core.replay_with(revived, Some(&mut *toy)).unwrap();
    assert_eq!(count(&mut again, "q", 9), (6, 0));
}

#[test]
fn an_old_record_of_a_revive_means_all_that_are_dead_in_memory_too() {
    let (rig, checkpoint, ids) = with_dead();
    let mut again = recovered(&rig, &checkpoint);
    let all = ids.into_iter().map(crate::Target::Id).collect();
    let got = again.call(|core, log| core.get(&queue("q"), all, false, now(9), log));
    assert!(got.iter().all(Result::is_ok));
    assert_eq!((again.core.cold_len(), again.core.len()), (0, 6));
    let toy = again.log.1.as_mut().unwrap();
    let revived = Record::Revived { queue: queue("q"), due: at(90), wall: at(9) };
    again.core.replay_with(revived, Some(&mut *toy)).unwrap();
    assert_eq!(count(&mut again, "q", 9), (6, 0));
}

#[test]
fn a_replay_finds_what_is_there_by_its_number() {
    let mut rig = Rig::new();
    let number = rig.put(put_to("q").after_ms(10), now(0)).unwrap().number;
    let gone = rig.put(put_to("q").after_ms(10), now(0)).unwrap();
    rig.call(|core, log| core.cancel(&queue("q"), vec![crate::Target::Id(gone.id)], now(0), log));
    let checkpoint = snapshot(&mut rig);
    evict(&mut rig, 0);
    let mut again = recovered(&rig, &checkpoint);
    let toy = again.log.1.as_mut().unwrap();
    assert_eq!(again.core.replay_has(number, None), Ok(false), "it is cold");
    assert_eq!(again.core.replay_has(number, Some(&mut *toy)), Ok(true));
    assert!(again.core.is_resident(number));
    assert_eq!(again.core.replay_has(number, None), Ok(true));
    assert_eq!(again.core.replay_has(gone.number, Some(&mut *toy)), Ok(false));
    again.core.check();
}

#[test]
fn what_had_expired_by_the_time_of_a_batch_is_dead_to_whoever_replays_it() {
    let mut rig = Rig::new();
    for (key, expires) in [("gone", 50), ("there", 51)] {
        let put = Put { expires: Some(at(expires)), ..put_to("q").key(key.parse().unwrap()) };
        rig.put(put.after_ms(10), now(0)).unwrap();
    }
    let checkpoint = snapshot(&mut rig);
    evict(&mut rig, 0);
    let mut again = recovered(&rig, &checkpoint);
    let toy = again.log.1.as_mut().unwrap();
    again.core.replay_begins(at(50));
    again.core.replay_expiry(Some(&mut *toy));
    let mut has_owner = |key: &str| {
        let owner = again.core.replay_owner(&queue("q"), &key.parse().unwrap(), Some(&mut *toy));
        owner.unwrap().is_some()
    };
    assert_eq!((has_owner("gone"), has_owner("there")), (false, true));
    again.core.check();
}
