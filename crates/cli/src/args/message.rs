//! Which message is meant: by id or key, or a selection of the dead.

use clap::Args;
use dwell_model::{Key, MessageId, QueueName};
use dwell_store::{Selection, Target};

/// A message by id or key.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// The queue
    pub(crate) queue: QueueName,
    /// The message's id
    #[arg(required_unless_present = "key", conflicts_with = "key")]
    id: Option<MessageId>,
    /// The live message that has this key
    #[arg(long)]
    key: Option<Key>,
}

impl TargetArgs {
    /// What was asked for.
    pub(crate) fn target(&self) -> Target {
        match (&self.id, &self.key) {
            (Some(id), _) => Target::Id(*id),
            (None, Some(key)) => Target::Key(key.clone()),
            (None, None) => unreachable!("clap asks for one of them"),
        }
    }
}

/// Dead messages: some by id, the oldest, or all.
#[derive(Debug, Args)]
pub(crate) struct DeadArgs {
    /// The queue
    pub(crate) queue: QueueName,
    /// These messages
    #[arg(required_unless_present_any = ["oldest", "all"], value_name = "ID")]
    ids: Vec<MessageId>,
    /// So many of those that have been dead longest
    #[arg(long, conflicts_with_all = ["ids", "all"], value_name = "COUNT")]
    oldest: Option<u64>,
    /// All that are dead now
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

impl DeadArgs {
    /// What was asked for.
    pub(crate) fn selection(&self) -> Selection {
        match (self.oldest, self.all) {
            (_, true) => Selection::All,
            (Some(count), false) => Selection::Oldest(count),
            (None, false) => Selection::Ids(self.ids.clone()),
        }
    }
}
