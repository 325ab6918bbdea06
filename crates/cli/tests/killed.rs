//! `kill -9` of a server between the slices of a retention and between leases that are ended one by one: answered
//! changes hold in the next server, and operations in progress continue.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::sync::mpsc;

use common::{Server, serve, until};
use dwell_client::Client;
use dwell_model::{Holder, MessageId, QueueName, Setting, SettingChange, StateKind};
use dwell_store::{Action, Blocking, Delivery, Error, LeaseRef, Put, Result, Settle, Settled, Take, Target};

const ROUNDS: usize = 3;
/// Several slices of the engine's work.
const DEAD: usize = 3_000;
const KEPT: usize = 5;
const HELD: usize = 400;

fn client(server: &Server) -> Blocking<Client> {
    Client::new(server.url()).unwrap().blocking()
}

/// Puts this many messages and takes them, in the order of the puts.
fn taken(client: &Blocking<Client>, name: &QueueName, count: usize) -> Vec<Delivery> {
    let puts = (0..count).map(|n| Put::new(name.clone(), n.to_string())).collect();
    assert!(client.put(puts).iter().all(Result::is_ok));
    let holder = Some(Holder::new("worker 7").unwrap());
    let take = Take { holder, ..Take::from(name.clone()).max(count).lease_ms(3_600_000) };
    let taken = client.take(take).unwrap();
    assert_eq!(taken.len(), count);
    taken
}

fn settle_all(client: &Blocking<Client>, held: &[Delivery], action: &Action) -> Vec<Result<Settled>> {
    let settles = held.iter().map(|one| Settle { receipt: one.receipt.clone(), action: action.clone() });
    client.settle(settles.collect())
}

fn bury_all(client: &Blocking<Client>, name: &QueueName) -> Vec<MessageId> {
    let held = taken(client, name, DEAD);
    let bury = Action::Bury { reason: None, priority: None };
    assert!(settle_all(client, &held, &bury).iter().all(Result::is_ok));
    held.into_iter().map(|one| one.message.id).collect()
}

/// Ends leases one by one until the server is killed; returns how many were answered, and reports each.
fn end_until_killed(client: &Blocking<Client>, held: &[Delivery], ended: &mpsc::Sender<usize>) -> usize {
    for (number, one) in held.iter().enumerate() {
        let lease = LeaseRef { id: one.message.id, takes: one.message.standing.counts.takes };
        let answer = client.expire_lease(one.receipt.queue.clone(), vec![lease]).pop().unwrap();
        match answer {
            Ok(settled) => assert_eq!(settled, Settled::Ready),
            Err(error) => {
                assert!(error.code() == "outcome_unknown" || error.code() == "unavailable", "{error}");
                return number;
            }
        }
        // The receiver is dropped once the kill is in progress.
        let _ = ended.send(number + 1);
    }
    held.len()
}

#[test]
fn retention_goes_on_and_ended_leases_stay_ended_where_the_server_is_killed_between_them() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..ROUNDS {
        let [dead, leased] =
            ["dead", "leased"].map(|name| QueueName::new(&format!("{name}-{round}")).unwrap());
        let server = serve(dir.path());
        let before = client(&server);
        let buried = bury_all(&before, &dead);
        let held = taken(&before, &leased, HELD);
        let (ended, heard) = mpsc::channel();
        let answered = std::thread::scope(|scope| {
            let ending = client(&server);
            let held = &held;
            let ending = scope.spawn(move || end_until_killed(&ending, held, &ended));
            let enough = 5 + 20 * round;
            while heard.recv().is_ok_and(|number| number < enough) {}
            let most = vec![SettingChange::Set(Setting::DeadMax(KEPT as u64))];
            assert_eq!(before.configure(dead.clone(), most).unwrap().settings.dead_max, Some(KEPT as u64));
            server.kill();
            ending.join().unwrap()
        });
        assert!(answered < HELD, "the kill came too late to mean anything");
        let server = serve(dir.path());
        let after = client(&server);
        check_retention(&after, &dead, &buried);
        check_leases(&after, &held, answered);
        server.kill();
    }
}

/// The youngest are kept, any missing message is older than all that are kept, and the excess is removed in the end.
fn check_retention(client: &Blocking<Client>, name: &QueueName, buried: &[MessageId]) {
    let ids = buried.iter().map(|id| Target::Id(*id)).collect();
    let found: Vec<bool> = client.get(name.clone(), ids, false).iter().map(Result::is_ok).collect();
    // Slices go on during these reads, the oldest first: messages that are kept come after any that is missing.
    assert!(found[DEAD - KEPT..].iter().all(|is_there| *is_there), "the youngest {KEPT} are kept");
    until("what is too much goes", || client.stats(name.clone()).unwrap().counts.dead == KEPT as u64);
    let listed = client.list(name.clone(), StateKind::Dead, None, 100).unwrap().messages;
    let mut listed: Vec<MessageId> = listed.into_iter().map(|message| message.id).collect();
    listed.sort();
    let mut youngest = buried[DEAD - KEPT..].to_vec();
    youngest.sort();
    assert_eq!(listed, youngest);
}

/// A lease whose end was answered is ended: an attempt is spent and its receipt is invalid. The others are held.
fn check_leases(client: &Blocking<Client>, held: &[Delivery], answered: usize) {
    let name = &held[0].receipt.queue;
    let ids = held.iter().map(|one| Target::Id(one.message.id)).collect();
    let found = client.get(name.clone(), ids, false);
    let acked = settle_all(client, held, &Action::Ack);
    for (number, (found, acked)) in found.into_iter().zip(acked).enumerate() {
        let standing = found.unwrap().standing;
        let is_ended = standing.state.kind() == StateKind::Ready
            && (standing.attempts, standing.counts.lapses, standing.holder.is_some()) == (1, 1, false)
            && acked == Err(Error::LeaseLost);
        let is_held = standing.state.kind() == StateKind::Leased
            && (standing.attempts, standing.holder.is_some()) == (0, true)
            && acked == Ok(Settled::Gone);
        match number {
            number if number < answered => {
                assert!(is_ended, "{number} of {answered}: {standing:?} {acked:?}")
            }
            number if number > answered => assert!(is_held, "{number} of {answered}: {standing:?} {acked:?}"),
            // Its answer never came.
            _ => assert!(is_ended || is_held, "{standing:?} {acked:?}"),
        }
    }
}
