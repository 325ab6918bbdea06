//! Leases that are bound to a process: which processes are there, and what becomes of the leases of one that is not.
//!
//! 1. A process dies. The directory knows where it binds leases, and when it was heard of last; whoever says that it is
//!    there itself is told who was silent for too long, and frees what was bound to them.
//! 2. Redis is away for long, or its clock steps. Then all were silent, and none need be gone: `hello.lua` counts silence
//!    from when somebody was heard of again.
//! 3. A process was silent, and lives: its leases were freed, and it was forgotten. It is told so when it is next heard of,
//!    and says anew where it binds leases; until it was heard of again it binds none elsewhere.

use std::collections::HashSet;

use bytes::Bytes;
use dwell_store::{Error, Result};
use futures_util::stream::{self, StreamExt as _};

use super::Inner;
use super::inspect::Patience;
use super::layout::Partition;
use super::pack::{Fields, Pack, Reply};
use super::scripts::Script;
use super::wire::locked;

/// A process that was silent for so long is gone.
const SILENT_MS: u32 = 15_000;

/// Who was heard of so long ago may have been forgotten.
const TRUSTED_MS: u64 = 10_000;

/// Where this process binds leases.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// As the directory knows.
    entered: HashSet<Partition>,
    /// As it knew before it forgot this process.
    lost: HashSet<Partition>,
    /// How often it has forgotten it.
    forgotten: u64,
    /// When it heard of it last, on the clock of patience.
    heard_ms: u64,
}

impl Inner {
    /// Says that leases of this process may be bound in a partition.
    pub(super) async fn enter_bound(&self, at: &Partition) -> Result<()> {
        let is_known = {
            let bound = locked(&self.bound);
            let is_trusted = self.wire.mono_ms().saturating_sub(bound.heard_ms) < TRUSTED_MS;
            is_trusted && bound.entered.contains(at)
        };
        if !is_known {
            self.say_hello(Some(at), &Fields::new(), Patience::Usual).await?;
        }
        Ok(())
    }

    /// Says that this process is there. What a process of its name had bound before is freed. Answers how others spread
    /// their queues, if it is otherwise: then nothing was done.
    pub(super) async fn introduce(&self, client: Option<&str>) -> Result<Option<u64>> {
        let reply = self.wire.directory(Script::Names, Fields::new().with("max", 0_u32)).await?;
        self.note_count(&reply);
        let introduction =
            Fields::new().with("spread", u32::from(self.limits.defaults.spread)).maybe("client", client);
        let reply = self.say_hello(None, &introduction, Patience::Usual).await?;
        if let Some(there) = reply.get("spread").uint() {
            return Ok(Some(there));
        }
        if let Some(before) = reply.get("before").bytes() {
            // Those that are not freed now are when it has been silent for long.
            let _ = self.free_bound(before).await;
        }
        Ok(None)
    }

    /// Says that this process is there; answers with those that have not been heard of for long.
    pub(super) async fn be_heard(&self) -> Result<Vec<Bytes>> {
        let reply = self.say_hello(None, &Fields::new(), Patience::Once).await?;
        let gone = reply.get("gone").items().iter().filter_map(|gone| gone.bytes().cloned());
        Ok(gone.filter(|gone| gone.as_ref() != self.wire.process).collect())
    }

    /// The directory may have lost where this process binds leases: it is told when it next hears of it.
    pub(super) fn say_bound_again(&self) {
        let mut bound = locked(&self.bound);
        let entered = std::mem::take(&mut bound.entered);
        bound.lost.extend(entered);
    }

    async fn say_hello(
        &self,
        at: Option<&Partition>,
        introduction: &Fields,
        patience: Patience,
    ) -> Result<Reply> {
        loop {
            let began_ms = self.wire.mono_ms();
            let (forgotten, has, whole, said) = {
                let bound = locked(&self.bound);
                let whole = !bound.lost.is_empty();
                let mut said: HashSet<_> = at.cloned().into_iter().collect();
                if whole {
                    said.extend(bound.lost.iter().chain(&bound.entered).cloned());
                }
                (bound.forgotten, whole || !bound.entered.is_empty(), whole, said)
            };
            let entries: Vec<_> = said.iter().map(|at| Pack::from(at.entry().as_str())).collect();
            let arguments = introduction
                .clone()
                .with("process", &self.wire.process[..])
                .with("silent", SILENT_MS)
                .maybe("bound", Some(entries).filter(|entries| !entries.is_empty()))
                .flag("has", has)
                .flag("whole", whole);
            let reply = self.wire.directory_within(Script::Hello, arguments, patience).await?;
            let mut bound = locked(&self.bound);
            let is_forgotten = reply.get("forgotten").is_set();
            if bound.forgotten != forgotten {
                // Another call has noticed it, and what was said here may have been forgotten too.
                continue;
            }
            if is_forgotten {
                bound.forgotten += 1;
                let entered = std::mem::take(&mut bound.entered);
                bound.lost.extend(entered);
                continue;
            }
            for at in said {
                bound.lost.remove(&at);
                bound.entered.insert(at);
            }
            bound.heard_ms = bound.heard_ms.max(began_ms);
            return Ok(reply);
        }
    }

    /// Frees the leases that were bound to a process which has ended; where Redis is away, whoever tidies up next tries again.
    /// Where somebody else's data is in the way they run out at their deadlines.
    pub(super) async fn free_bound(&self, process: &[u8]) -> Result<()> {
        self.free(process, Fields::new().with("process", process)).await
    }

    /// The same, of one that was silent for too long, unless it is heard of by now.
    pub(super) async fn free_silent(&self, process: &[u8]) -> Result<()> {
        self.free(process, Fields::new().with("process", process).with("silent", SILENT_MS)).await
    }

    async fn free(&self, process: &[u8], named: Fields) -> Result<()> {
        let reply = self.wire.directory(Script::Bound, named.clone()).await?;
        let parts = reply.get("parts").items().iter();
        let parts = parts.filter_map(|entry| entry.text().and_then(Partition::of_entry));
        let freed = parts.map(|at| async move {
            loop {
                let freed = Fields::new().with("process", process).with("max", 64_u32);
                let freed = self.ask(&at, Script::Unbind, freed).await;
                match freed.map_err(super::dead::failed) {
                    Ok(freed) if freed.reply.get("left").is_set() => {}
                    Ok(_) | Err(Error::ForeignData { .. }) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        });
        // All of them are tried, whatever becomes of some, and some at a time.
        let freed: Vec<Result<()>> =
            stream::iter(freed.collect::<Vec<_>>()).buffer_unordered(16).collect().await;
        freed.into_iter().collect::<Result<()>>()?;
        self.wire.directory(Script::Bound, named.flag("forget", true)).await?;
        Ok(())
    }
}
