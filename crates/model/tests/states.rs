//! `docs/states.md` and the state machine say the same: every cell of its tables is visited.
//!
//! Each cell is worked out by `apply` or `as_of` and written in the document's own words, and the words must
//! be equal. A row or column that only one side knows is a failure too.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is the answer")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::NonZeroU32;

use dwell_model::{
    AttemptLimit, Command, Counts, Death, DeathReason, Grant, Lease, LeaseToken, Now, Refusal, Standing,
    State, Timestamp, Transition, apply, as_of, is_acked, taken,
};

const DOCUMENT: &str = include_str!("../../../docs/states.md");

const NOW_MS: i64 = 1_000_000;
const EXPIRES_MS: i64 = 1_060_000;
const RIGHT: LeaseToken = LeaseToken(7);
const WRONG: LeaseToken = LeaseToken(8);
/// The standings below have two attempts behind them: this leaves more, the other leaves none.
const ATTEMPTS_LEFT: AttemptLimit = AttemptLimit::At(NonZeroU32::new(5).unwrap());
const LAST_ATTEMPT: AttemptLimit = AttemptLimit::At(NonZeroU32::new(3).unwrap());

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms).unwrap()
}

fn now() -> Now {
    Now { wall: at(NOW_MS), mono_ms: 50_000 }
}

fn standing(state: State) -> Standing {
    let due_ms = if state == State::Scheduled { NOW_MS + 10_000 } else { NOW_MS - 10_000 };
    Standing {
        state,
        due: at(due_ms),
        priority: 1_024,
        attempts: 2,
        expires: Some(at(EXPIRES_MS)),
        keyless: false,
        counts: Counts { takes: 4, lapses: 1, releases: 1, buries: 1, revives: 1 },
        last_error: Some("an older error".into()),
    }
}

fn leased(bound: bool) -> Standing {
    standing(State::Leased(Lease::granted(RIGHT, 5_000, bound, now())))
}

fn dead(reason: DeathReason) -> Standing {
    standing(State::Dead(Death { reason, at: at(NOW_MS - 1) }))
}

/// The columns of the command table: how the message stands, and the token that is shown.
fn situations() -> Vec<(&'static str, Standing, LeaseToken)> {
    let expired = Standing { expires: Some(at(NOW_MS - 5_000)), ..dead(DeathReason::Expired) };
    vec![
        ("scheduled", standing(State::Scheduled), RIGHT),
        ("ready", standing(State::Ready), RIGHT),
        ("leased, right token", leased(true), RIGHT),
        ("leased, wrong token", leased(true), WRONG),
        ("dead", dead(DeathReason::AttemptsSpent), RIGHT),
        ("dead, expired", expired, RIGHT),
    ]
}

/// The rows of the command table, with the limit of attempts that they are tried under.
fn commands(token: LeaseToken) -> Vec<(&'static str, Command, AttemptLimit)> {
    let grant = Grant { token: LeaseToken(99), lease_ms: 30_000, bound: false };
    let retry =
        |after_ms| Command::Retry { token, after_ms, priority: Some(5), error: Some("a new error".into()) };
    let release = |after_ms| Command::Release { token, after_ms, priority: Some(5) };
    let bury = Command::Bury { token, priority: Some(5), reason: Some("a reason".into()) };
    let past_expiry_ms = (EXPIRES_MS - NOW_MS) as u64;
    let past_9999_ms = Timestamp::MAX.as_ms() as u64;
    vec![
        ("take", Command::Take(grant), ATTEMPTS_LEFT),
        ("take by id", Command::TakeById(grant), ATTEMPTS_LEFT),
        ("ack", Command::Ack(token), ATTEMPTS_LEFT),
        ("retry", retry(1_000), ATTEMPTS_LEFT),
        ("retry at once", retry(0), ATTEMPTS_LEFT),
        ("retry past the expiry", retry(past_expiry_ms), ATTEMPTS_LEFT),
        ("retry of the last attempt", retry(1_000), LAST_ATTEMPT),
        ("retry past 9999", retry(past_9999_ms), ATTEMPTS_LEFT),
        ("release", release(None), ATTEMPTS_LEFT),
        ("release at the last attempt", release(None), LAST_ATTEMPT),
        ("release with a delay", release(Some(1_000)), ATTEMPTS_LEFT),
        ("release with a delay of 0", release(Some(0)), ATTEMPTS_LEFT),
        ("release past 9999", release(Some(past_9999_ms)), ATTEMPTS_LEFT),
        ("give back", Command::GiveBack(token), ATTEMPTS_LEFT),
        ("bury", bury, ATTEMPTS_LEFT),
        ("extend", Command::Extend { token, lease_ms: 60_000 }, ATTEMPTS_LEFT),
        ("unbind", Command::Unbind, ATTEMPTS_LEFT),
        ("unbind at the last attempt", Command::Unbind, LAST_ATTEMPT),
        ("cancel", Command::Cancel, ATTEMPTS_LEFT),
        ("reschedule", Command::Reschedule(at(NOW_MS + 20_000)), ATTEMPTS_LEFT),
        ("reschedule into the past", Command::Reschedule(at(NOW_MS - 20_000)), ATTEMPTS_LEFT),
        ("reschedule to the expiry or past it", Command::Reschedule(at(EXPIRES_MS)), ATTEMPTS_LEFT),
        ("bring forward", Command::BringForward(at(NOW_MS - 20_000)), ATTEMPTS_LEFT),
        ("bring forward to a later instant", Command::BringForward(at(NOW_MS + 20_000)), ATTEMPTS_LEFT),
        ("revive", Command::Revive(at(NOW_MS + 20_000)), ATTEMPTS_LEFT),
        ("revive at once", Command::Revive(now().wall), ATTEMPTS_LEFT),
        ("revive to the expiry or past it", Command::Revive(at(EXPIRES_MS)), ATTEMPTS_LEFT),
        ("discard", Command::Discard, ATTEMPTS_LEFT),
        ("give up the key", Command::GiveUpKey, ATTEMPTS_LEFT),
    ]
}

/// Does not compile once there is a command more: whoever adds one adds its rows above.
fn has_a_row(command: &Command) {
    match command {
        Command::Take(_)
        | Command::TakeById(_)
        | Command::Ack(_)
        | Command::Retry { .. }
        | Command::Release { .. }
        | Command::GiveBack(_)
        | Command::Bury { .. }
        | Command::Extend { .. }
        | Command::Unbind
        | Command::Cancel
        | Command::Reschedule(_)
        | Command::BringForward(_)
        | Command::Revive(_)
        | Command::Discard
        | Command::GiveUpKey => {}
    }
}

fn place(state: &State) -> String {
    match state {
        State::Dead(death) => format!("dead ({})", death.reason.as_str().replace('_', " ")),
        other => other.kind().as_str().to_owned(),
    }
}

fn refusal(refusal: Refusal) -> String {
    let why = match refusal {
        Refusal::LeaseLost => "lease lost",
        Refusal::Leased => "leased",
        Refusal::Dead => "dead",
        Refusal::NotDead => "not dead",
        Refusal::NotReady => "not ready",
        Refusal::ExpiresBeforeDue => "expires before due",
        Refusal::DueOutOfRange => "due out of range",
    };
    format!("refused: {why}")
}

/// What became of `before`, in the words of the document: the state first, then all that changed.
fn changes(before: &Standing, next: &Standing) -> String {
    let mut words = place(&next.state);
    let mut say = |holds: bool, what: &str| {
        if holds {
            let _ = write!(words, "; {what}");
        }
    };
    say(next.attempts == before.attempts + 1, "attempt spent");
    say(next.attempts == 0 && before.attempts != 0, "attempts 0");
    let counts = [
        ("takes", before.counts.takes, next.counts.takes),
        ("lapses", before.counts.lapses, next.counts.lapses),
        ("releases", before.counts.releases, next.counts.releases),
        ("buries", before.counts.buries, next.counts.buries),
        ("revives", before.counts.revives, next.counts.revives),
    ];
    for (count, old, new) in counts {
        say(new == old + 1, &format!("{count} + 1"));
        say(new + 1 == old, &format!("{count} − 1"));
        assert!(new.abs_diff(old) <= 1, "{count}: {old} to {new}");
    }
    match (before.state, next.state) {
        (State::Leased(old), State::Leased(new)) if old != new => {
            assert_eq!((old.token, old.bound), (new.token, new.bound), "an extended lease keeps its token");
            say(true, "new deadline");
        }
        _ => {}
    }
    say(next.due != before.due, "new due");
    say(next.priority != before.priority, "new priority");
    say(next.last_error != before.last_error, "error kept");
    say(next.expires.is_none() && before.expires.is_some(), "expiry dropped");
    say(next.keyless && !before.keyless, "keyless");
    assert!(next.expires.is_none() || next.expires == before.expires, "an expiry never moves");
    assert!(
        next.attempts == before.attempts || next.attempts == before.attempts + 1 || next.attempts == 0,
        "attempts: {} to {}",
        before.attempts,
        next.attempts
    );
    words
}

fn outcome(before: &Standing, result: Result<Transition, Refusal>) -> String {
    let transition = match result {
        Ok(transition) => transition,
        Err(why) => return refusal(why),
    };
    let effects = transition.effects;
    let mut words = transition.next.as_ref().map_or("gone".to_owned(), |next| changes(before, next));
    for (holds, what) in [
        (effects.became_ready, "wakes a take"),
        (effects.frees_key, "frees its key"),
        (effects.claims_key, "claims its key"),
    ] {
        if holds {
            let _ = write!(words, "; {what}");
        }
    }
    words
}

type Cells = BTreeMap<(String, String), String>;

/// The one table below the heading `heading`, by (row, column).
fn table(heading: &str) -> Cells {
    let (_, section) = DOCUMENT
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("docs/states.md has no section '{heading}'"));
    let section = section.split("\n## ").next().unwrap();
    let mut lines = section.lines().filter(|line| line.starts_with('|'));
    let split = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace("**", "")).collect()
    };
    let columns = split(lines.next().expect("a table has a head"));
    let mut cells = Cells::new();
    let rule = lines.next().expect("a rule stands below the head");
    assert!(rule.chars().all(|c| "|-".contains(c)), "'{heading}': not a rule: {rule}");
    for line in lines {
        let row = split(line);
        assert_eq!(row.len(), columns.len(), "'{heading}': a cell is missing in: {line}");
        for (column, cell) in columns.iter().zip(&row).skip(1) {
            let twice = cells.insert((row[0].clone(), column.clone()), cell.clone());
            assert!(twice.is_none(), "'{heading}' has row '{}' twice", row[0]);
        }
    }
    cells
}

/// Fails with every difference, and with the rows as they would have to be written.
fn compare(heading: &str, actual: Vec<(&str, Vec<(&str, String)>)>) {
    let mut written = table(heading);
    let mut wrong = String::new();
    let mut rows = String::new();
    for (row, cells) in actual {
        let _ = write!(rows, "| {row} |");
        for (column, cell) in cells {
            let _ = write!(rows, " {cell} |");
            match written.remove(&(row.to_owned(), column.to_owned())) {
                Some(documented) if documented == cell => {}
                documented => {
                    let _ = writeln!(
                        wrong,
                        "  {row} × {column}: the code says '{cell}', the document {documented:?}"
                    );
                }
            }
        }
        rows.push('\n');
    }
    for ((row, column), cell) in written {
        let _ =
            writeln!(wrong, "  {row} × {column}: the document says '{cell}', the test knows no such cell");
    }
    assert!(wrong.is_empty(), "docs/states.md, '{heading}':\n{wrong}\nThe code's table:\n{rows}");
}

#[test]
fn what_time_does() {
    let lapsed = Lease { deadline_mono_ms: now().mono_ms, ..Lease::granted(RIGHT, 5_000, false, now()) };
    let stored = [
        ("scheduled", standing(State::Scheduled), ATTEMPTS_LEFT),
        ("ready", standing(State::Ready), ATTEMPTS_LEFT),
        ("leased, deadline ahead", leased(false), ATTEMPTS_LEFT),
        ("leased, deadline passed", standing(State::Leased(lapsed)), ATTEMPTS_LEFT),
        ("leased, deadline passed, last attempt", standing(State::Leased(lapsed)), LAST_ATTEMPT),
        ("dead", dead(DeathReason::Buried), ATTEMPTS_LEFT),
    ];
    let (due_ms, expires_ms) = (NOW_MS + 10, NOW_MS + 20);
    let moments = [("before due", due_ms - 1), ("due", due_ms), ("expired", expires_ms)];
    let rows = stored.map(|(row, standing, limit)| {
        let standing = Standing { due: at(due_ms), expires: Some(at(expires_ms)), ..standing };
        let cell = |(column, wall_ms)| {
            let later = Now { wall: at(wall_ms), ..now() };
            let next = as_of(&standing, later, limit);
            assert_eq!(as_of(&next, later, limit), next, "{row}, {column}: time acts once");
            (column, changes(&standing, &next))
        };
        (row, moments.map(cell).to_vec())
    });
    compare("What time does", rows.to_vec());
}

#[test]
fn what_commands_do() {
    let rows = commands(RIGHT).into_iter().enumerate().map(|(index, (row, command, limit))| {
        has_a_row(&command);
        let cells = situations().into_iter().map(|(column, before, token)| {
            let command = &commands(token)[index].1;
            (column, outcome(&before, apply(&before, command, now(), limit)))
        });
        (row, cells.collect())
    });
    compare("What commands do", rows.collect());
}

#[test]
fn what_commands_do_to_a_message_that_expired_while_it_was_held() {
    let before = Standing { expires: Some(at(NOW_MS)), ..leased(true) };
    let rows = commands(RIGHT).into_iter().map(|(row, command, limit)| {
        (row, vec![("leased, right token", outcome(&before, apply(&before, &command, now(), limit)))])
    });
    compare("Held past its expiry", rows.collect());
}

/// The ground rule behind the two tables: a command meets the message as time has left it. Only what the
/// store has to do besides is judged against what is stored.
#[test]
fn time_comes_before_every_command() {
    let lapsed = Lease { deadline_mono_ms: now().mono_ms, ..Lease::granted(RIGHT, 5_000, true, now()) };
    let mut stored: Vec<Standing> = situations().into_iter().map(|(_, standing, _)| standing).collect();
    stored.push(standing(State::Leased(lapsed)));
    let mut visited = 0;
    for standing in stored {
        for due in [NOW_MS - 1, NOW_MS, NOW_MS + 1].map(at) {
            for expires in [None, Some(at(NOW_MS)), Some(at(EXPIRES_MS))] {
                for (row, command, limit) in commands(RIGHT) {
                    let standing = Standing { due, expires, ..standing.clone() };
                    let seen = as_of(&standing, now(), limit);
                    let direct = apply(&standing, &command, now(), limit);
                    let staged = apply(&seen, &command, now(), limit);
                    let live = |at: &Standing| !matches!(at.state, State::Dead(_)) && !at.keyless;
                    if let Ok(direct) = &direct {
                        let next_lives = direct.next.as_ref().is_some_and(live);
                        assert_eq!(direct.effects.frees_key, live(&standing) && !next_lives, "{row}");
                        assert_eq!(direct.effects.claims_key, !live(&standing) && next_lives, "{row}");
                        let is_ready = direct.next.as_ref().is_some_and(|next| next.state == State::Ready);
                        assert_eq!(
                            direct.effects.became_ready,
                            is_ready && standing.state != State::Ready,
                            "{row}"
                        );
                    }
                    let next = |result: Result<Transition, Refusal>| result.map(|done| done.next);
                    assert_eq!(next(direct), next(staged), "{row} on {standing:?}");
                    visited += 1;
                }
            }
        }
    }
    assert_eq!(visited, 7 * 3 * 3 * commands(RIGHT).len());
}

/// What a store asks that looks at the lease alone.
#[test]
fn an_ack_depends_on_token_and_deadline_alone() {
    let granted = now();
    for lease_ms in [0, 1, 5_000] {
        let lease = Lease::granted(RIGHT, lease_ms, false, granted);
        for token in [RIGHT, WRONG] {
            for later_ms in [0, 1, 2, 4_999, 5_000, 90_000] {
                let later = Now {
                    wall: at(NOW_MS + later_ms),
                    mono_ms: granted.mono_ms + u64::try_from(later_ms).unwrap(),
                };
                let standing = standing(State::Leased(lease));
                let applied = apply(&standing, &Command::Ack(token), later, ATTEMPTS_LEFT);
                let is_gone = applied.is_ok_and(|transition| transition.next.is_none());
                assert_eq!(is_acked(&lease, token, later), is_gone, "{lease:?} {token:?} {later:?}");
            }
        }
    }
}

#[test]
fn a_message_that_is_taken_without_looking_back_stands_as_apply_says() {
    let lapsed = Now { wall: at(NOW_MS + 5_000), mono_ms: 55_000 };
    let expired = Now { wall: at(EXPIRES_MS), mono_ms: 50_001 };
    let grant = Grant { token: WRONG, lease_ms: 3_000, bound: true };
    let states = [State::Scheduled, State::Ready].map(standing);
    let states = states.into_iter().chain([leased(false), leased(true), dead(DeathReason::Buried)]);
    for standing in states {
        for later in [now(), Now { wall: at(NOW_MS + 10_000), mono_ms: 50_001 }, lapsed, expired] {
            for limit in [ATTEMPTS_LEFT, LAST_ATTEMPT] {
                let applied = apply(&standing, &Command::Take(grant), later, limit);
                let expected = applied.map(|transition| transition.next.unwrap());
                assert_eq!(taken(standing.clone(), &grant, later, limit), expected, "{standing:?} {later:?}");
            }
        }
    }
}
