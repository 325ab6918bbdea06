//! What can be wrong with a queue, and what helps.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Layout;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A key holds another type than Redisson gives it.
    WrongType,
    /// An element that no layout reads: Java's script fails at it when it is due.
    Undecodable,
    /// An element with an instant before 1970: Java never moves it, and asks for it without pause.
    NegativeScore,
    /// The first element is due and nobody has moved it.
    Overdue,
    /// In the list and not in the sorted set: counted by Java, never delivered.
    ListedOnly,
    /// In the sorted set and not in the list: delivered, but hidden from Java's `size`, `contains` and `remove`.
    ScheduledOnly,
    /// More than once in the list.
    ListedTwice,
    /// An instant with a fraction of a millisecond: Java can not read it while it is the first.
    FractionalScore,
    /// An instant past what Java reads as a number: never due.
    EndlessScore,
    /// Elements of the other layout: Java's script fails at them when they are due.
    OtherLayout,
    /// Elements are pending and nobody listens to the queue's channel: no mover is alive.
    NobodyListens,
    /// Leases of ours that ran out, which no consumer or mover has ended.
    LapsedLeases,
    /// Payloads that a consumer of ours waited for and has not leased.
    InInbox,
    /// Elements were set aside before.
    SetAside,
    /// Payloads whose attempts are spent.
    DeadLetters,
}

/// What the doctor can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fix {
    /// Takes them out of list and sorted set, into the hash of what is set aside.
    SetAside,
    /// Takes them out of the list, into the hash of what is set aside.
    Unlist,
    /// Adds them to the end of the list.
    List,
    /// Leaves the first of equal entries.
    Once,
    /// Rounds the instant up.
    Round,
    /// Writes them in the layout that the Java clients read.
    Rewrite,
    /// Moves all that is due, once.
    Move,
    /// Ends the leases that ran out, and gives back what is in the inbox.
    Reap,
}

impl Kind {
    /// A stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::WrongType => "wrong_type",
            Kind::Undecodable => "undecodable",
            Kind::NegativeScore => "negative_score",
            Kind::Overdue => "overdue",
            Kind::OtherLayout => "other_layout",
            Kind::ListedOnly => "listed_only",
            Kind::ScheduledOnly => "scheduled_only",
            Kind::ListedTwice => "listed_twice",
            Kind::FractionalScore => "fractional_score",
            Kind::EndlessScore => "endless_score",
            Kind::NobodyListens => "nobody_listens",
            Kind::LapsedLeases => "lapsed_leases",
            Kind::InInbox => "in_inbox",
            Kind::SetAside => "set_aside",
            Kind::DeadLetters => "dead_letters",
        }
    }

    /// What it means, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::WrongType => "a key holds another type than Redisson gives it; nothing can be moved",
            Kind::Undecodable => {
                "no layout reads them: Java's script fails there, and repeats what is due before"
            }
            Kind::NegativeScore => "due before 1970: Java never moves them, and asks for them without pause",
            Kind::Overdue => "due, and nobody has moved them",
            Kind::OtherLayout => "packed by the other line of Redisson releases: Java's script fails there",
            Kind::ListedOnly => "counted as pending, but without an instant: never delivered",
            Kind::ScheduledOnly => "delivered when due, but hidden from Java's size, contains and remove",
            Kind::ListedTwice => "listed more than once: counted twice",
            Kind::FractionalScore => {
                "due at a fraction of a millisecond: Java can not read that as the first instant"
            }
            Kind::EndlessScore => "due past what Java reads as a number: never delivered",
            Kind::NobodyListens => "elements are pending, and no mover listens: run `dwell redisson move`",
            Kind::LapsedLeases => "leases that ran out; the next claim or mover ends them",
            Kind::InInbox => {
                "between destination and a lease; the next claim takes them, or a mover gives them back"
            }
            Kind::SetAside => "set aside before, for somebody to look at",
            Kind::DeadLetters => "payloads whose attempts are spent",
        }
    }

    /// Whether it is more than a note.
    pub fn is_trouble(self) -> bool {
        !matches!(self, Kind::LapsedLeases | Kind::InInbox | Kind::SetAside | Kind::DeadLetters)
    }

    /// What the doctor can do about it.
    pub fn fix(self) -> Option<Fix> {
        match self {
            Kind::Undecodable | Kind::NegativeScore | Kind::EndlessScore => Some(Fix::SetAside),
            Kind::ListedOnly => Some(Fix::Unlist),
            Kind::ScheduledOnly => Some(Fix::List),
            Kind::ListedTwice => Some(Fix::Once),
            Kind::FractionalScore => Some(Fix::Round),
            Kind::OtherLayout => Some(Fix::Rewrite),
            Kind::Overdue => Some(Fix::Move),
            Kind::LapsedLeases | Kind::InInbox => Some(Fix::Reap),
            Kind::WrongType | Kind::NobodyListens | Kind::SetAside | Kind::DeadLetters => None,
        }
    }
}

impl Fix {
    /// What will be done, for people.
    pub fn plan(self) -> &'static str {
        match self {
            Fix::SetAside => "take out of the queue, into the hash of what is set aside",
            Fix::Unlist => "take out of the list, into the hash of what is set aside",
            Fix::List => "add to the end of the list",
            Fix::Once => "leave one list entry each",
            Fix::Round => "round the instant up to a whole millisecond",
            Fix::Rewrite => "write in the layout that the Java clients read, same instant, same place",
            Fix::Move => "move to the destination now",
            Fix::Reap => "give back to the destination, or to the dead letters",
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// How many elements, leases or keys.
    pub count: usize,
    /// What some of them look like.
    pub samples: Vec<String>,
    /// The elements, for mending: at most [`ELEMENTS_MAX`].
    #[serde(skip)]
    pub(super) elements: Vec<Vec<u8>>,
    /// The layout that they should have.
    #[serde(skip)]
    pub(super) layout: Option<Layout>,
}

/// How many elements of a kind are kept; `--fix` runs again for more.
pub(super) const ELEMENTS_MAX: usize = 10_000;
const SAMPLES_MAX: usize = 5;
const SAMPLE_BYTES: usize = 60;

impl Finding {
    pub(super) fn new(kind: Kind, count: usize) -> Finding {
        Finding { kind, count, samples: Vec::new(), elements: Vec::new(), layout: None }
    }

    /// Counts one more.
    pub(super) fn add(&mut self, element: &[u8]) {
        self.count += 1;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(excerpt(element));
        }
        if self.elements.len() < ELEMENTS_MAX {
            self.elements.push(element.to_vec());
        }
    }
}

/// Bytes for people: what is no printable ASCII is escaped, and it is cut.
fn excerpt(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    let mut text = cut.escape_ascii().to_string();
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}
