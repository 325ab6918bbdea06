//! What the oracle accuses the store of, and how it finds the right word.

use std::fmt;

use super::group::{Changed, Found, Move, Raised, SettleHeard, State, Target, What};
use super::linearize::{DeadEnd, Deed};
use super::message::Phase;
use super::policy::Policy;
use super::window::{At, Rules};

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Handed out before its instant.
    Early,
    /// Answered, and not there any more.
    Lost,
    /// Acked, cancelled, discarded or never put, and there all the same.
    Resurrected,
    /// Handed out while somebody held it.
    TwoReceipts,
    /// A lease token issued a second time.
    TokenReused,
    /// An id or number given to a second message.
    IdReused,
    /// A lease in force that the store no longer honours.
    LeaseLost,
    /// Handed out after something that should have come later.
    OutOfOrder,
    /// Due, nobody has it, and a take that had room for it came back without.
    Withheld,
    /// Other bytes than were put.
    WrongBytes,
    /// More dead messages than their queue keeps, or for longer.
    Retained,
    /// More messages leased than their queue allows.
    CapPassed,
    /// A setting that reads otherwise than it was set, or a pause that did not hold.
    Setting,
    /// Says again and again that there is something to do, and does nothing.
    Spin,
    /// A call that had nothing to wait for was not answered.
    Stuck,
    /// Anything else that no order of the commands explains.
    Contradiction,
}

/// A broken promise, with what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// Which promise.
    pub(crate) kind: Kind,
    /// What was heard.
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// Which promise was broken where nothing explains what was heard.
pub(super) fn diagnose(deeds: &[Deed<What>], end: &DeadEnd<State>, rules: &Rules, policy: &Policy) -> Kind {
    let kinds = end.stuck.iter().map(|place| {
        let deed = &deeds[*place];
        let at = At { begin: deed.begin, end: deed.end, window: deed.window, rules, policy };
        kind(&deed.effect, &end.state, at)
    });
    // Where several commands are stuck, all but the culprit are stuck only for now.
    kinds.min().unwrap_or(Kind::Contradiction)
}

fn kind(what: &What, state: &State, at: At<'_>) -> Kind {
    let find = |no: u64| state.messages.iter().find(|message| message.no == no && !message.is_gone());
    let is_there = |target: &Target| match target {
        Target::Message(no) => find(*no).is_some(),
        Target::Key => state.messages.iter().any(|message| message.owns_key()),
    };
    match what {
        What::Taken(delivered) => match find(delivered.no) {
            None => Kind::Resurrected,
            Some(message) => {
                let versions = message.versions(at, false);
                match versions.iter().map(|version| version.standing.phase).max() {
                    Some(Phase::Leased(_)) => Kind::TwoReceipts,
                    Some(Phase::Dead(_) | Phase::Gone(_)) => Kind::Resurrected,
                    _ if !versions.iter().any(|version| version.may_be_ready(at)) => Kind::Early,
                    _ => Kind::Contradiction,
                }
            }
        },
        What::Listed(sight) | What::Got { found: Found::Message(sight), .. } if find(sight.no).is_none() => {
            Kind::Resurrected
        }
        What::Got { target, found: Found::Nothing, .. }
        | What::Cancel { target, heard: Some(Changed::NotFound) }
        | What::Reschedule { target, heard: Some(Move::NotFound), .. }
            if is_there(target) =>
        {
            Kind::Lost
        }
        What::Revive { no, heard: Some(Raised::NotFound), .. }
        | What::Discard { no, heard: Some(Raised::NotFound) }
            if find(*no).is_some() =>
        {
            Kind::Lost
        }
        What::Settle { no, heard: Some(SettleHeard::LeaseLost), .. } if find(*no).is_some() => {
            Kind::LeaseLost
        }
        What::Settle { no, heard: Some(_), .. } if find(*no).is_none() => Kind::Resurrected,
        _ => Kind::Contradiction,
    }
}
