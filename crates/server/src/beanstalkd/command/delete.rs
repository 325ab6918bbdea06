//! `delete <id>`: the holder's ack; of a job without a holder, a cancel or discard by any connection.
//!
//! Each of the three is one atomic step of the store. Between them a job may change its state (its lease runs out, it
//! is kicked), so a job that has left one state is looked for in the next.

use std::collections::BTreeMap;

use dwell_model::{MessageId, QueueName};
use dwell_store::{Action, Cancelled, Error, Selection, Settle, Target};

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::Delete)
}

/// A job may change from dead to scheduled and back during a delete; this bounds the number of tries.
const ROUNDS: usize = 3;

/// Deletes a run of different jobs, with the fewest calls to the store that their states allow; replies to each in
/// order.
pub(in crate::beanstalkd) async fn delete_all(session: &mut Session, numbers: &[u64], replies: &mut Replies) {
    let mut words = vec![None; numbers.len()];
    delete_held(session, numbers, &mut words).await;
    for _ in 0..ROUNDS {
        if words.iter().all(Option::is_some) {
            break;
        }
        delete_unheld(session, numbers, &mut words).await;
    }
    words.into_iter().for_each(|word| replies.word(word.unwrap_or(Word::NotFound)));
    // The counts of a tube whose last job this was are no longer needed.
    session.shared.forget_gone_tubes().await;
}

/// Those that this connection holds. A job whose lease is over is left to the other function.
async fn delete_held(session: &mut Session, numbers: &[u64], words: &mut [Option<Word>]) {
    let mut places = Vec::new();
    let mut settles = Vec::new();
    for (place, number) in numbers.iter().enumerate() {
        if let Some(receipt) = session.held.receipt(*number) {
            places.push(place);
            settles.push(Settle { receipt: receipt.clone(), action: Action::Ack });
        }
    }
    if settles.is_empty() {
        return;
    }
    let queues: Vec<QueueName> = settles.iter().map(|settle| settle.receipt.queue.clone()).collect();
    let answers = session.shared.store.settle(settles).await;
    for ((place, queue), answer) in places.into_iter().zip(queues).zip(answers) {
        match answer {
            Ok(_) => {
                session.held.remove(numbers[place]);
                session.shared.tubes.deleted(&queue);
                words[place] = Some(Word::Deleted);
            }
            Err(Error::LeaseLost) => session.held.lost(numbers[place]),
            Err(error) => words[place] = Some(Word::from(&error)),
        }
    }
}

/// Those without a holder, as far as one look-up of each shows.
async fn delete_unheld(session: &Session, numbers: &[u64], words: &mut [Option<Word>]) {
    let open: Vec<usize> = (0..numbers.len()).filter(|place| words[*place].is_none()).collect();
    let asked: Vec<u64> = open.iter().map(|place| numbers[*place]).collect();
    let mut by_queue: BTreeMap<QueueName, Vec<(usize, MessageId)>> = BTreeMap::new();
    for (place, found) in open.iter().zip(session.locate(&asked).await) {
        match found {
            Ok(Some((queue, id))) => by_queue.entry(queue).or_default().push((*place, id)),
            Ok(None) => words[*place] = Some(Word::NotFound),
            Err(error) => words[*place] = Some(Word::from(&error)),
        }
    }
    for (queue, jobs) in by_queue {
        let targets = jobs.iter().map(|(_, id)| Target::Id(*id)).collect();
        let answers = session.shared.store.cancel(queue.clone(), targets).await;
        let mut dead = Vec::new();
        for ((place, id), answer) in jobs.into_iter().zip(answers) {
            words[place] = match answer {
                Ok(Cancelled::Cancelled(_)) => Some(Word::Deleted),
                Ok(Cancelled::Leased(_) | Cancelled::NotFound) => Some(Word::NotFound),
                Ok(Cancelled::Dead(_)) => {
                    dead.push((place, id));
                    None
                }
                Err(error) => Some(Word::from(&error)),
            };
            if words[place] == Some(Word::Deleted) {
                session.shared.tubes.deleted(&queue);
            }
        }
        if !dead.is_empty() {
            discard(session, queue, dead, words).await;
        }
    }
}

/// Those that are buried; a job that is not any more stays open.
async fn discard(
    session: &Session,
    queue: QueueName,
    dead: Vec<(usize, MessageId)>,
    words: &mut [Option<Word>],
) {
    let ids = dead.iter().map(|(_, id)| *id).collect();
    match session.shared.store.discard(queue.clone(), Selection::Ids(ids)).await {
        Ok(swept) => {
            for (place, id) in dead {
                let refusal =
                    swept.refused.iter().find(|(refused, _)| *refused == id).map(|(_, error)| error);
                words[place] = match refusal {
                    None => {
                        session.shared.tubes.deleted(&queue);
                        Some(Word::Deleted)
                    }
                    Some(Error::NotDead { .. }) => None,
                    Some(error) => Some(Word::from(error)),
                };
            }
        }
        Err(error) => dead.into_iter().for_each(|(place, _)| words[place] = Some(Word::from(&error))),
    }
}
