//! The problems that a queue can have, and their fixes.

use std::fmt;

use serde::{Serialize, Serializer};

use super::Layout;

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingKind {
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

impl FindingKind {
    /// A stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            FindingKind::WrongType => "wrong_type",
            FindingKind::Undecodable => "undecodable",
            FindingKind::NegativeScore => "negative_score",
            FindingKind::Overdue => "overdue",
            FindingKind::OtherLayout => "other_layout",
            FindingKind::ListedOnly => "listed_only",
            FindingKind::ScheduledOnly => "scheduled_only",
            FindingKind::ListedTwice => "listed_twice",
            FindingKind::FractionalScore => "fractional_score",
            FindingKind::EndlessScore => "endless_score",
            FindingKind::NobodyListens => "nobody_listens",
            FindingKind::LapsedLeases => "lapsed_leases",
            FindingKind::InInbox => "in_inbox",
            FindingKind::SetAside => "set_aside",
            FindingKind::DeadLetters => "dead_letters",
        }
    }

    /// The explanation for users.
    pub fn meaning(self) -> &'static str {
        match self {
            FindingKind::WrongType => "a key holds another type than Redisson gives it; nothing can be moved",
            FindingKind::Undecodable => {
                "no layout reads them: Java's script fails there, and repeats what is due before"
            }
            FindingKind::NegativeScore => {
                "due before 1970: Java never moves them, and asks for them without pause"
            }
            FindingKind::Overdue => "due, and nobody has moved them",
            FindingKind::OtherLayout => {
                "packed by the other line of Redisson releases: Java's script fails there"
            }
            FindingKind::ListedOnly => "counted as pending, but without an instant: never delivered",
            FindingKind::ScheduledOnly => {
                "delivered when due, but hidden from Java's size, contains and remove"
            }
            FindingKind::ListedTwice => "listed more than once: counted twice",
            FindingKind::FractionalScore => {
                "due at a fraction of a millisecond: Java cannot read that as the first instant"
            }
            FindingKind::EndlessScore => "due past what Java reads as a number: never delivered",
            FindingKind::NobodyListens => {
                "elements are pending, and no mover listens: run `dwell redisson move`"
            }
            FindingKind::LapsedLeases => "leases that ran out; the next claim or mover ends them",
            FindingKind::InInbox => {
                "between destination and a lease; the next claim takes them, or a mover gives them back"
            }
            FindingKind::SetAside => "set aside before, for somebody to look at",
            FindingKind::DeadLetters => "payloads whose attempts are spent",
        }
    }

    /// Whether it is a problem, and not only a note.
    pub fn is_trouble(self) -> bool {
        !matches!(
            self,
            FindingKind::LapsedLeases
                | FindingKind::InInbox
                | FindingKind::SetAside
                | FindingKind::DeadLetters
        )
    }

    /// The fix for it, if there is one.
    pub fn fix(self) -> Option<Fix> {
        match self {
            FindingKind::Undecodable | FindingKind::NegativeScore | FindingKind::EndlessScore => {
                Some(Fix::SetAside)
            }
            FindingKind::ListedOnly => Some(Fix::Unlist),
            FindingKind::ScheduledOnly => Some(Fix::List),
            FindingKind::ListedTwice => Some(Fix::Once),
            FindingKind::FractionalScore => Some(Fix::Round),
            FindingKind::OtherLayout => Some(Fix::Rewrite),
            FindingKind::Overdue => Some(Fix::Move),
            FindingKind::LapsedLeases | FindingKind::InInbox => Some(Fix::Reap),
            FindingKind::WrongType
            | FindingKind::NobodyListens
            | FindingKind::SetAside
            | FindingKind::DeadLetters => None,
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

impl Serialize for FindingKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One problem of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
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
    pub(super) fn new(kind: FindingKind, count: usize) -> Finding {
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
