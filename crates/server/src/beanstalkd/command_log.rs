//! The log of commands: at debug, a line for each command, or for a run that went to the store together.

use super::command::Command;
use super::session::Session;

/// A command that is logged when its reply is written.
pub(super) struct Logged {
    /// Its verb alone: a command may hold a body.
    verb: &'static str,
    began_ms: u64,
}

impl Logged {
    /// `None` if the level is not enabled.
    pub(super) fn begin(command: &Command, session: &Session) -> Option<Logged> {
        tracing::enabled!(target: "dwell::beanstalkd", tracing::Level::DEBUG)
            .then(|| Logged { verb: command.verb(), began_ms: session.now_ms() })
    }

    /// Logs the command and those of its run: `commands` in all.
    pub(super) fn end(self, session: &Session, commands: usize) {
        let took_ms = session.now_ms().saturating_sub(self.began_ms);
        let (peer, verb, tube) = (&session.peer, self.verb, session.used().as_str());
        tracing::debug!(target: "dwell::beanstalkd", %peer, verb, commands, tube, took_ms, "answered");
    }
}
