//! Arguments that select messages: by id or key, or a selection of the dead.

use clap::Args;
use dwell_model::{Key, MessageId, QueueName};
use dwell_store::{Selection, Target};

use crate::access::Server;
use crate::command::{Context, only};
use crate::exit::Failure;

/// A message by id or key.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// The queue
    pub(crate) queue: QueueName,
    /// The message's id
    #[arg(required_unless_present = "key", conflicts_with = "key")]
    id: Option<MessageId>,
    /// The live message with this key
    #[arg(long)]
    key: Option<Key>,
}

impl TargetArgs {
    /// The target to send.
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
    /// The messages with these ids
    #[arg(required_unless_present_any = ["oldest", "all", "key"], value_name = "ID")]
    ids: Vec<MessageId>,
    /// The youngest of those that had this key, if no live message has it
    #[arg(long, conflicts_with_all = ["ids", "oldest", "all"], value_name = "KEY")]
    key: Option<Key>,
    /// This many of those that have been dead longest
    #[arg(long, conflicts_with_all = ["ids", "all"], value_name = "COUNT")]
    oldest: Option<u64>,
    /// All that are dead now
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

impl DeadArgs {
    /// The selection to send. A key is looked up first: the operation uses the id that is found, and prints it.
    pub(crate) fn selection(&self, context: &Context, client: &Server) -> Result<Selection, Failure> {
        if let Some(key) = &self.key {
            let target = Target::Key(key.clone());
            let found = only(client.get(self.queue.clone(), vec![target], true))?;
            context.output.remark(&format!("the message with this key is {}", found.id));
            return Ok(Selection::Ids(vec![found.id]));
        }
        Ok(match (self.oldest, self.all) {
            (_, true) => Selection::All,
            (Some(count), false) => Selection::Oldest(count),
            (None, false) => Selection::Ids(self.ids.clone()),
        })
    }
}
