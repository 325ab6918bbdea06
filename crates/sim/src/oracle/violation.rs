//! The kinds of violations, and how the kind of a contradiction is found.

use std::fmt;

use super::group::{Changed, Found, Move, Raised, SettleHeard, State, Target, What};
use super::linearize::{DeadEnd, Deed};
use super::message::Phase;
use super::policy::Policy;
use super::window::{At, Rules};

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Delivered before its due instant.
    Early,
    /// Answered, and no longer there.
    Lost,
    /// Acked, cancelled, discarded or never put, but still there.
    Resurrected,
    /// Delivered while it was leased.
    TwoReceipts,
    /// A lease token was issued a second time.
    TokenReused,
    /// An id or number was given to a second message.
    IdReused,
    /// A lease in force was not honoured by the store.
    LeaseLost,
    /// Delivered after a message that should have come later.
    OutOfOrder,
    /// Due and not leased, but a take that had room for it did not return it.
    Withheld,
    /// The body differs from the one that was put.
    WrongBytes,
    /// More dead messages than their queue keeps, or kept for longer.
    Retained,
    /// More messages leased than their queue allows.
    CapPassed,
    /// A setting reads otherwise than it was set, or a pause was not respected.
    Setting,
    /// The store reports work again and again without making progress.
    Spin,
    /// A call that had nothing to wait for was not answered.
    Stuck,
    /// Anything else that no order of the commands explains.
    Contradiction,
}

/// A violation, with a description.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    /// The kind.
    pub(crate) kind: Kind,
    /// The description.
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// The kind of violation if nothing explains the answers.
pub(super) fn diagnose(deeds: &[Deed<What>], end: &DeadEnd<State>, rules: &Rules, policy: &Policy) -> Kind {
    let kinds = end.stuck.iter().map(|place| {
        let deed = &deeds[*place];
        let at = At { begin: deed.begin, end: deed.end, window: deed.window, rules, policy };
        kind(&deed.effect, &end.state, at)
    });
    // If several commands are stuck, all but the wrong one are stuck only for now.
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
