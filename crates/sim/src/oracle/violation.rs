//! The kinds of violations, and how the kind of a contradiction is found.

use std::fmt;

use super::group::{
    Changed, FoundMessage, GroupEvent, GroupState, GroupTarget, Raised, RescheduleTo, SettleHeard,
};
use super::linearize::{DeadEnd, Deed};
use super::message::MessagePhase;
use super::policy::Policy;
use super::window::{At, Rules};

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ViolationKind {
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
    pub(crate) kind: ViolationKind,
    /// The description.
    pub(crate) text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

/// The kind of violation if nothing explains the answers.
pub(super) fn diagnose(
    deeds: &[Deed<GroupEvent>],
    end: &DeadEnd<GroupState>,
    rules: &Rules,
    policy: &Policy,
) -> ViolationKind {
    let kinds = end.stuck.iter().map(|place| {
        let deed = &deeds[*place];
        let at = At { begin: deed.begin, end: deed.end, window: deed.window, rules, policy };
        kind(&deed.effect, &end.state, at)
    });
    // If several commands are stuck, all but the wrong one are stuck only for now.
    kinds.min().unwrap_or(ViolationKind::Contradiction)
}

fn kind(what: &GroupEvent, state: &GroupState, at: At<'_>) -> ViolationKind {
    let find = |no: u64| state.messages.iter().find(|message| message.no == no && !message.is_gone());
    let is_there = |target: &GroupTarget| match target {
        GroupTarget::Message(no) => find(*no).is_some(),
        GroupTarget::Key => state.messages.iter().any(|message| message.owns_key()),
    };
    match what {
        GroupEvent::Taken(delivered) => match find(delivered.no) {
            None => ViolationKind::Resurrected,
            Some(message) => {
                let versions = message.versions(at, false);
                match versions.iter().map(|version| version.standing.phase).max() {
                    Some(MessagePhase::Leased(_)) => ViolationKind::TwoReceipts,
                    Some(MessagePhase::Dead(_) | MessagePhase::Gone(_)) => ViolationKind::Resurrected,
                    _ if !versions.iter().any(|version| version.may_be_ready(at)) => ViolationKind::Early,
                    _ => ViolationKind::Contradiction,
                }
            }
        },
        GroupEvent::Listed(sight) | GroupEvent::Got { found: FoundMessage::Message(sight), .. }
            if find(sight.no).is_none() =>
        {
            ViolationKind::Resurrected
        }
        GroupEvent::Got { target, found: FoundMessage::Nothing, .. }
        | GroupEvent::Cancel { target, heard: Some(Changed::NotFound) }
        | GroupEvent::Reschedule { target, heard: Some(RescheduleTo::NotFound), .. }
            if is_there(target) =>
        {
            ViolationKind::Lost
        }
        GroupEvent::Revive { no, heard: Some(Raised::NotFound), .. }
        | GroupEvent::Discard { no, heard: Some(Raised::NotFound) }
            if find(*no).is_some() =>
        {
            ViolationKind::Lost
        }
        GroupEvent::Settle { no, heard: Some(SettleHeard::LeaseLost), .. } if find(*no).is_some() => {
            ViolationKind::LeaseLost
        }
        GroupEvent::Settle { no, heard: Some(_), .. } if find(*no).is_none() => ViolationKind::Resurrected,
        _ => ViolationKind::Contradiction,
    }
}
