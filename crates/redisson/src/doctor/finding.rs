//! The problems that a queue can have, and their fixes.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Layout;

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// A key has another type than Redisson gives it.
    WrongType,
    /// An element that no layout can decode: Java's script fails at it when it is due.
    Undecodable,
    /// An element with an instant before 1970: Java never moves it, and polls for it without pause.
    NegativeScore,
    /// The first element is due and was not moved.
    Overdue,
    /// In the list but not in the sorted set: counted by Java, never delivered.
    ListedOnly,
    /// In the sorted set but not in the list: delivered, but hidden from Java's `size`, `contains` and `remove`.
    ScheduledOnly,
    /// More than once in the list.
    ListedTwice,
    /// An instant with a fraction of a millisecond: Java cannot parse it while it is the first.
    FractionalScore,
    /// An instant beyond what Java parses as a number: never due.
    EndlessScore,
    /// Elements of the other layout: Java's script fails at them when they are due.
    OtherLayout,
    /// Elements are pending and the queue's channel has no subscriber: no mover is alive.
    NobodyListens,
    /// Lapsed leases of our consumers, which no consumer or mover has ended.
    LapsedLeases,
    /// Payloads that a consumer of ours waited for and has not leased.
    InInbox,
    /// Elements that were set aside before.
    SetAside,
    /// Payloads whose attempts are spent.
    DeadLetters,
}

/// A fix that the doctor can apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fix {
    /// Moves the elements from the list and the sorted set into the hash of set-aside elements.
    SetAside,
    /// Moves the elements from the list into the hash of set-aside elements.
    Unlist,
    /// Adds them to the end of the list.
    List,
    /// Keeps only the first of equal entries.
    Once,
    /// Rounds the instant up.
    Round,
    /// Writes them in the layout that the Java clients read.
    Rewrite,
    /// Moves all due elements, once.
    Move,
    /// Ends lapsed leases, and gives back the payloads in the inbox.
    Reap,
}

impl Kind {
    /// A stable name.
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

    /// The explanation for users.
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
                "due at a fraction of a millisecond: Java cannot read that as the first instant"
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

    /// Whether it is a problem, and not only a note.
    pub fn is_trouble(self) -> bool {
        !matches!(self, Kind::LapsedLeases | Kind::InInbox | Kind::SetAside | Kind::DeadLetters)
    }

    /// The fix for it, if there is one.
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
    /// What the fix will do, as text for users.
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

/// One problem of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// The number of elements, leases or keys.
    pub count: usize,
    /// Excerpts of some of them.
    pub samples: Vec<String>,
    /// The elements, for the fix: at most [`ELEMENTS_MAX`].
    #[serde(skip)]
    pub(super) elements: Vec<Vec<u8>>,
    /// The layout that they should have.
    #[serde(skip)]
    pub(super) layout: Option<Layout>,
}

/// The maximum number of elements kept per kind; run `--fix` again for more.
pub(super) const ELEMENTS_MAX: usize = 10_000;
const SAMPLES_MAX: usize = 5;
const SAMPLE_BYTES: usize = 60;

impl Finding {
    pub(super) fn new(kind: Kind, count: usize) -> Finding {
        Finding { kind, count, samples: Vec::new(), elements: Vec::new(), layout: None }
    }

    /// Adds an element.
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

/// Bytes as text for users: escaped unless printable ASCII, and truncated.
fn excerpt(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SAMPLE_BYTES)];
    let mut text = cut.escape_ascii().to_string();
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}
