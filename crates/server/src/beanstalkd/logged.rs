//! What the log says of commands: a line for each, or for a run of them that went to the store together, at debug.

use super::command::Command;
use super::session::Session;

/// A command that is logged when it has its reply.
pub(super) struct Logged {
    /// Its kind alone: a command may hold a body.
    verb: &'static str,
    began_ms: u64,
}

impl Logged {
    /// If anybody reads it.
    pub(super) fn begin(command: &Command, session: &Session) -> Option<Logged> {
        tracing::enabled!(target: "dwell::beanstalkd", tracing::Level::DEBUG)
            .then(|| Logged { verb: command.verb(), began_ms: session.now_ms() })
    }

    /// It has its reply, and so have those behind it that came with it: so many `commands` in all.
    pub(super) fn end(self, session: &Session, commands: usize) {
        let took_ms = session.now_ms().saturating_sub(self.began_ms);
        let (peer, verb, tube) = (&session.peer, self.verb, session.used().as_str());
        tracing::debug!(target: "dwell::beanstalkd", %peer, verb, commands, tube, took_ms, "answered");
    }
}
