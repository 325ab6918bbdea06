//! The scripts: each consists of a prelude that yields `now`, the common functions, and its own file.

use redis::Cmd;

use super::pack::Beside;

/// The scripts, each named as its file in `lua/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Check,
    Put,
    Take,
    TakeId,
    Settle,
    Change,
    Get,
    List,
    Stats,
    Forecast,
    Configure,
    Dead,
    Drop,
    Sweep,
    Retain,
    Retire,
    Unbind,
    Unwait,
    Holds,
    Enter,
    Leave,
    Numbers,
    Names,
    Blocks,
    Hello,
    Session,
    Unused,
    OldBlocks,
    LeaveBlock,
    Recall,
    Known,
}

/// The source of `now`: the server, or a test.
const NOW: &str = include_str!("lua/now.lua");
const NOW_TEST: &str = include_str!("lua/now_test.lua");

const BEGIN: &str = include_str!("lua/begin.lua");
const RECORD: &str = include_str!("lua/record.lua");
const PLACE: &str = include_str!("lua/place.lua");
const TIME: &str = include_str!("lua/time.lua");
const HEAD: &str = include_str!("lua/head.lua");
const TOKEN: &str = include_str!("lua/idempotency.lua");
const BACKOFF: &str = include_str!("lua/backoff.lua");
const DIRECTORY: &str = include_str!("lua/directory.lua");
const FAILOVER: &str = include_str!("lua/failover.lua");

impl Script {
    const ALL: [Script; 31] = [
        Script::Check,
        Script::Put,
        Script::Take,
        Script::TakeId,
        Script::Settle,
        Script::Change,
        Script::Get,
        Script::List,
        Script::Stats,
        Script::Forecast,
        Script::Configure,
        Script::Dead,
        Script::Drop,
        Script::Sweep,
        Script::Retain,
        Script::Retire,
        Script::Unbind,
        Script::Unwait,
        Script::Holds,
        Script::Enter,
        Script::Leave,
        Script::Numbers,
        Script::Names,
        Script::Blocks,
        Script::Hello,
        Script::Session,
        Script::Unused,
        Script::OldBlocks,
        Script::LeaveBlock,
        Script::Recall,
        Script::Known,
    ];

    fn body(self) -> &'static str {
        match self {
            Script::Check => include_str!("lua/check.lua"),
            Script::Put => include_str!("lua/put.lua"),
            Script::Take => include_str!("lua/take.lua"),
            Script::TakeId => include_str!("lua/take_id.lua"),
            Script::Settle => include_str!("lua/settle.lua"),
            Script::Change => include_str!("lua/change.lua"),
            Script::Get => include_str!("lua/get.lua"),
            Script::List => include_str!("lua/list.lua"),
            Script::Stats => include_str!("lua/stats.lua"),
            Script::Forecast => include_str!("lua/forecast.lua"),
            Script::Configure => include_str!("lua/configure.lua"),
            Script::Dead => include_str!("lua/dead.lua"),
            Script::Drop => include_str!("lua/drop.lua"),
            Script::Sweep => include_str!("lua/sweep.lua"),
            Script::Retain => include_str!("lua/retain.lua"),
            Script::Retire => include_str!("lua/retire.lua"),
            Script::Unbind => include_str!("lua/end_session.lua"),
            Script::Unwait => include_str!("lua/unwait.lua"),
            Script::Holds => include_str!("lua/holds.lua"),
            Script::Enter => include_str!("lua/enter.lua"),
            Script::Leave => include_str!("lua/leave.lua"),
            Script::Numbers => include_str!("lua/numbers.lua"),
            Script::Names => include_str!("lua/names.lua"),
            Script::Blocks => include_str!("lua/blocks.lua"),
            Script::Hello => include_str!("lua/hello.lua"),
            Script::Session => include_str!("lua/session.lua"),
            Script::Unused => include_str!("lua/unused.lua"),
            Script::OldBlocks => include_str!("lua/old_blocks.lua"),
            Script::LeaveBlock => include_str!("lua/leave_block.lua"),
            Script::Recall => include_str!("lua/recall.lua"),
            Script::Known => include_str!("lua/known.lua"),
        }
    }

    /// The files that come before its own text.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Script::Check => &[],
            Script::Unwait | Script::Holds => &[BEGIN],
            Script::Unused => &[BEGIN, RECORD],
            Script::Take => &[BEGIN, RECORD, PLACE, BACKOFF, TIME, HEAD],
            Script::Recall => &[BEGIN, TOKEN],
            Script::Put | Script::Stats | Script::Configure => &[BEGIN, RECORD, PLACE, BACKOFF, TIME, TOKEN],
            Script::Settle
            | Script::TakeId
            | Script::Change
            | Script::Get
            | Script::List
            | Script::Forecast
            | Script::Dead
            | Script::Drop
            | Script::Sweep
            | Script::Retain
            | Script::Retire
            | Script::Unbind => &[BEGIN, RECORD, PLACE, BACKOFF, TIME],
            Script::Enter | Script::Numbers | Script::Known => &[DIRECTORY, FAILOVER],
            Script::Leave
            | Script::Names
            | Script::Blocks
            | Script::Hello
            | Script::Session
            | Script::OldBlocks
            | Script::LeaveBlock => &[DIRECTORY],
        }
    }

    /// Whether it changes what callers see, and so is called under its own number.
    pub(super) fn is_recorded(self) -> bool {
        matches!(
            self,
            Script::Put
                | Script::Take
                | Script::TakeId
                | Script::Settle
                | Script::Change
                | Script::Configure
                | Script::Dead
                | Script::Drop
        )
    }

    /// The text of the script: each file is nested in a function inside the file before it.
    ///
    /// Lua 5.1 creates all closures of a script in each call. To capture a local of the enclosing function it searches
    /// the list of all open upvalues (`luaF_findupval`); with the files side by side that was a quarter of the time of a
    /// put. An upvalue of the enclosing function is captured without a search. A function has at most 60 upvalues.
    fn text(self, prelude: &str) -> String {
        let mut text = prelude.to_owned();
        for part in self.needs() {
            text.push_str(part);
            text.push_str("return (function()\n");
        }
        text.push_str(self.body());
        self.needs().iter().for_each(|_| text.push_str("\nend)()"));
        text
    }
}

/// All scripts over one prelude.
pub(super) struct Scripts(Vec<ScriptText>);

/// The full text of a script, and the hash that identifies it on the server.
struct ScriptText {
    hash: String,
    text: String,
}

impl Scripts {
    pub(super) fn on_the_servers_clock() -> Scripts {
        Scripts::over(NOW)
    }

    pub(super) fn on_a_tests_clock() -> Scripts {
        Scripts::over(NOW_TEST)
    }

    fn over(prelude: &str) -> Scripts {
        let text = |script: &Script| {
            let text = script.text(prelude);
            ScriptText { hash: redis::Script::new(&text).get_hash().to_owned(), text }
        };
        Scripts(Script::ALL.iter().map(text).collect())
    }

    /// Calls a script by its hash, if the server has it.
    pub(super) fn by_hash(
        &self,
        script: Script,
        key: &str,
        arguments: (&[u8], &Beside),
        now: Option<i64>,
    ) -> Cmd {
        Scripts::command("EVALSHA", &self.0[script as usize].hash, key, arguments, now)
    }

    /// Calls a script by its text, which loads it into the server.
    pub(super) fn by_text(
        &self,
        script: Script,
        key: &str,
        arguments: (&[u8], &Beside),
        now: Option<i64>,
    ) -> Cmd {
        Scripts::command("EVAL", &self.0[script as usize].text, key, arguments, now)
    }

    fn command(name: &str, text: &str, key: &str, arguments: (&[u8], &Beside), now: Option<i64>) -> Cmd {
        let (table, beside) = arguments;
        let bytes = text.len() + key.len() * 2 + table.len() + beside.bytes() + 64;
        let mut command = Cmd::with_capacity(beside.iter().len() + 7, bytes);
        // Two keys, one of which never exists: while a cluster moves their slot to another node, no node runs a
        // command with several keys of which some are missing, and answers TRYAGAIN. So no script sees half a
        // partition.
        command.arg(name).arg(text).arg(2).arg(key).arg(format!("{key}meta")).arg(table);
        beside.iter().for_each(|argument| {
            command.arg(argument);
        });
        if let Some(now) = now {
            command.arg(now);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_of_tests_differ_from_the_real_ones_in_the_prelude_alone() {
        for script in Script::ALL {
            let (real, test) = (script.text(NOW), script.text(NOW_TEST));
            assert_eq!(real.strip_prefix(NOW), test.strip_prefix(NOW_TEST), "{script:?}");
            assert!(real.starts_with(NOW), "{script:?}");
        }
        for script in Script::ALL {
            let own_clock = script.needs().iter().chain([&script.body()]).any(|part| part.contains("'TIME'"));
            assert!(!own_clock, "{script:?} reads the clock past the prelude");
        }
    }

    #[test]
    fn every_script_is_found_at_its_place_and_says_what_it_does() {
        for (index, script) in Script::ALL.into_iter().enumerate() {
            assert_eq!(script as usize, index);
            let head: Vec<_> = script.body().lines().take_while(|line| line.starts_with("--")).collect();
            let head = head.join("\n");
            for part in ["Keys ", "Reply ", "Cost "] {
                assert!(head.contains(&format!("-- {part}")), "{script:?} does not say its {part}");
            }
        }
    }
}
