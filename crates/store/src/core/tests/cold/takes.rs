//! Takes that wait for cold messages, and cold messages that are due at an opening.

use super::*;

#[test]
fn what_is_cold_at_an_opening_is_taken_when_it_is_due() {
    let mut rig = Rig::new();
    let PutAnswer { id, number, .. } = rig.put(put_to("q").after_ms(10), now(0)).unwrap();
    let checkpoint = snapshot(&mut rig);
    assert!(rig.core.is_resident(number));
    evict(&mut rig, 0);
    assert!(!rig.core.is_resident(number));
    let mut again = recovered(&rig, &checkpoint);
    assert_eq!(again.core.cold_len(), 1);
    assert!(!again.core.is_resident(number));
    let taken = again.take(Take::from(queue("q")), now(10)).unwrap();
    assert!(again.core.is_resident(number));
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [id]);
}

fn waits(rig: &mut Rig, names: &[&str], wait_ms: u64) {
    let take = Take::from_all(names.iter().map(|name| queue(name))).wait_ms(wait_ms);
    assert_eq!(rig.call(|core, log| core.take(&take, now(60), log)), Ok(Vec::new()));
    rig.call(|core, log| core.wait(WaiterId(1), take, now(60), log)).unwrap();
}

fn served(rig: &mut Rig, at: u64) -> Vec<(u64, Vec<QueueName>)> {
    let answers = rig.call(|core, log| core.serve(now(at), log));
    let queues = |answer: Result<Vec<Delivery>>| -> Vec<QueueName> {
        answer.unwrap().into_iter().map(|delivery| delivery.message.queue).collect()
    };
    answers.into_iter().map(|(id, answer)| (id.0, queues(answer))).collect()
}

#[test]
fn a_wait_does_not_end_with_nothing_before_it_is_known_that_there_is_nothing() {
    let mut rig = behind();
    waits(&mut rig, &["q"], 5);
    assert_eq!(served(&mut rig, 60), []);
    assert!(!rig.call(|core, log| core.catch_up(now(70), log)));
    assert_eq!(served(&mut rig, 70), [], "what expires hides what does not");
    rig.catch_up(now(70));
    assert_eq!(served(&mut rig, 70), [(1, vec![queue("q")])]);
    waits(&mut rig, &["q"], 5);
    assert_eq!(served(&mut rig, 80), [(1, Vec::new())]);
}

#[test]
fn a_take_that_waits_on_several_queues_gets_what_goes_out_first_of_all_of_them() {
    let mut rig = behind();
    waits(&mut rig, &["other", "q"], 1_000);
    assert_eq!(served(&mut rig, 60), []);
    let other = Take::from(queue("other"));
    assert_eq!(rig.call(|core, log| core.take(&other, now(60), log)), Ok(Vec::new()), "another came earlier");
    assert!(rig.core.gave_up());
    rig.catch_up(now(60));
    assert_eq!(served(&mut rig, 60), [(1, vec![queue("q")])]);
    assert_eq!(rig.take(other, now(60)).unwrap().len(), 1);
}
