//! The inbox: commands that wait for a shard's next turn.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use dwell_store::Error;
use dwell_time::Notifier;

use super::command::Command;
use crate::sync::{Mutex, MutexGuard};

/// The waiting commands, and the notifier of their receiver.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    /// `None` once the shard is gone.
    commands: Mutex<Option<VecDeque<Command>>>,
    notifier: Arc<dyn Notifier>,
}

impl CommandQueue {
    /// An empty inbox; `notifier` wakes the thread that runs the turns.
    pub(crate) fn new(notifier: Arc<dyn Notifier>) -> CommandQueue {
        CommandQueue { commands: Mutex::new(Some(VecDeque::new())), notifier }
    }

    /// Queues a command; refuses it if the shard is gone.
    pub(crate) fn send(&self, command: Command) {
        let refused = match &mut *self.commands() {
            Some(commands) => {
                commands.push_back(command);
                None
            }
            None => Some(command),
        };
        match refused {
            None => self.notifier.notify(),
            Some(command) => command.refuse(&Error::Closed),
        }
    }

    /// The notifier that is called for each command.
    pub(crate) fn notifier(&self) -> &Arc<dyn Notifier> {
        &self.notifier
    }

    /// Whether no command is waiting.
    pub(crate) fn is_empty(&self) -> bool {
        self.commands().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Moves all waiting commands to the end of `mine`.
    pub(crate) fn take_into(&self, mine: &mut VecDeque<Command>) {
        if let Some(commands) = &mut *self.commands() {
            if mine.is_empty() {
                std::mem::swap(mine, commands);
            } else {
                mine.append(commands);
            }
        }
    }

    /// The shard is gone: refuses all waiting commands, and all later ones.
    pub(crate) fn close(&self) {
        let left = self.commands().take();
        for command in left.into_iter().flatten() {
            command.refuse(&Error::Closed);
        }
    }

    fn commands(&self) -> MutexGuard<'_, Option<VecDeque<Command>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
