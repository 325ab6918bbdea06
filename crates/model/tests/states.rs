//! `docs/states.md` and the state machine agree: every cell of its tables is checked.
//!
//! Each cell is computed by `apply` or `as_of` and written in the document's own words, and the words must be equal. A
//! row or column that only one of them has is a failure too.

#![expect(clippy::unwrap_used, reason = "helpers of tests, where a panic is the answer")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::NonZeroU32;

use dwell_model::{
    AttemptLimit, Command, Counts, Death, DeathReason, Grant, LapseBackoff, Lease, LeaseToken, MessageId,
    Now, OnExpiry, Refusal, Rules, Settings, Standing, State, Timestamp, Transition, apply, apply_take,
    as_of, is_acked,
};

const DOCUMENT: &str = include_str!("../../../docs/states.md");

const NOW_MS: i64 = 1_000_000;
const EXPIRES_MS: i64 = 1_060_000;
/// The number of times that each of the standings below was handed out.
const TAKES: u32 = 4;
const RIGHT: LeaseToken = LeaseToken(7);
const WRONG: LeaseToken = LeaseToken(8);
/// The standings below have two attempts spent: this limit leaves more, the other one leaves none.
const ATTEMPTS_LEFT: AttemptLimit = AttemptLimit::At(NonZeroU32::new(5).unwrap());
const LAST_ATTEMPT: AttemptLimit = AttemptLimit::At(NonZeroU32::new(3).unwrap());

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms).unwrap()
}

fn now() -> Now {
    Now { wall: at(NOW_MS), mono_ms: 50_000 }
}

/// The rules of a message with this limit of attempts.
fn rules(max_attempts: AttemptLimit, settings: &Settings) -> Rules<'_> {
    Rules { id: MessageId::new(at(NOW_MS), 0, 0, 1), max_attempts, settings }
}

fn dropping() -> Settings {
    Settings { on_expiry: OnExpiry::Drop, ..Settings::default() }
}

fn backing_off() -> Settings {
    Settings { lapse_backoff: LapseBackoff::First, ..Settings::default() }
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
        counts: Counts { takes: TAKES, lapses: 1, releases: 1, buries: 1, revives: 1 },
        last_error: Some("an older error".into()),
        holder: None,
    }
}

fn leased(session: bool) -> Standing {
    standing(State::Leased(Lease::granted(RIGHT, 5_000, session, now())))
}

fn dead(reason: DeathReason) -> Standing {
    standing(State::Dead(Death { reason, at: at(NOW_MS - 1) }))
}

/// The columns of the command table: the message's standing, and the token that the command presents.
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

/// The rows of the command table, with the limit of attempts that each is tested with.
fn commands(token: LeaseToken) -> Vec<(&'static str, Command, AttemptLimit)> {
    let grant = Grant { token: LeaseToken(99), lease_ms: 30_000, session: false, holder: None };
    let retry =
        |after_ms| Command::Retry { token, after_ms, priority: Some(5), error: Some("a new error".into()) };
    let release = |after_ms| Command::Release { token, after_ms, priority: Some(5) };
    let bury = Command::Bury { token, priority: Some(5), reason: Some("a reason".into()) };
    let past_expiry_ms = (EXPIRES_MS - NOW_MS) as u64;
    let past_9999_ms = Timestamp::MAX.as_ms() as u64;
    vec![
        ("take", Command::Take(grant.clone()), ATTEMPTS_LEFT),
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
        ("unbind", Command::EndSession, ATTEMPTS_LEFT),
        ("unbind, `lapse_backoff`", Command::EndSession, ATTEMPTS_LEFT),
        ("unbind at the last attempt", Command::EndSession, LAST_ATTEMPT),
        ("expire lease", Command::ExpireLease { takes: TAKES }, ATTEMPTS_LEFT),
        ("expire lease, `lapse_backoff`", Command::ExpireLease { takes: TAKES }, ATTEMPTS_LEFT),
        ("expire lease at the last attempt", Command::ExpireLease { takes: TAKES }, LAST_ATTEMPT),
        ("expire lease of an earlier take", Command::ExpireLease { takes: TAKES - 1 }, ATTEMPTS_LEFT),
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

/// The settings of the queue that a row of the command table is tried in.
fn settings_of(row: &str) -> Settings {
    if row.ends_with("`lapse_backoff`") { backing_off() } else { Settings::default() }
}

/// Does not compile once a command is added, as a reminder to add its rows above.
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
        | Command::EndSession
        | Command::ExpireLease { .. }
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
        Refusal::NotLeased => "not leased",
        Refusal::LeaseChanged => "lease changed",
        Refusal::Gone => "gone",
        Refusal::ExpiresBeforeDue => "expires before due",
        Refusal::DueOutOfRange => "due out of range",
    };
    format!("refused: {why}")
}

/// The change from `before`, in the words of the document: the state first, then everything that changed.
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
            assert_eq!(
                (old.token, old.session),
                (new.token, new.session),
                "an extended lease keeps its token"
            );
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

/// Fails with every difference, and prints the rows as they should be.
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
    let (plain, dropping, backing_off) = (Settings::default(), dropping(), backing_off());
    let (left, last) = (rules(ATTEMPTS_LEFT, &plain), rules(LAST_ATTEMPT, &plain));
    let (drops, backs_off) = (rules(ATTEMPTS_LEFT, &dropping), rules(ATTEMPTS_LEFT, &backing_off));
    let lapsed = || standing(State::Leased(lapsed));
    let stored = [
        ("scheduled", standing(State::Scheduled), left),
        ("scheduled, `on_expiry` drop", standing(State::Scheduled), drops),
        ("ready", standing(State::Ready), left),
        ("ready, `on_expiry` drop", standing(State::Ready), drops),
        ("leased, deadline ahead", leased(false), left),
        ("leased, deadline ahead, `on_expiry` drop", leased(false), drops),
        ("leased, deadline passed", lapsed(), left),
        ("leased, deadline passed, `lapse_backoff`", lapsed(), backs_off),
        ("leased, deadline passed, `on_expiry` drop", lapsed(), drops),
        ("leased, deadline passed, last attempt", lapsed(), last),
        (
            "leased, deadline passed, last attempt, `lapse_backoff`",
            lapsed(),
            Rules { settings: &backing_off, ..last },
        ),
        (
            "leased, deadline passed, last attempt, `on_expiry` drop",
            lapsed(),
            Rules { settings: &dropping, ..last },
        ),
        ("dead", dead(DeathReason::Buried), left),
        ("dead, `on_expiry` drop", dead(DeathReason::Buried), drops),
    ];
    let (due_ms, expires_ms) = (NOW_MS + 10, NOW_MS + 20);
    let moments = [("before due", due_ms - 1), ("due", due_ms), ("expired", expires_ms)];
    let rows = stored.map(|(row, standing, rules)| {
        let standing = Standing { due: at(due_ms), expires: Some(at(expires_ms)), ..standing };
        let cell = |(column, wall_ms)| {
            let later = Now { wall: at(wall_ms), ..now() };
            let Some(next) = as_of(&standing, later, rules) else { return (column, "gone".to_owned()) };
            assert_eq!(as_of(&next, later, rules).as_ref(), Some(&next), "{row}, {column}: time acts once");
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
        let settings = settings_of(row);
        let cells = situations().into_iter().map(|(column, before, token)| {
            let command = &commands(token)[index].1;
            (column, outcome(&before, apply(&before, command, now(), rules(limit, &settings))))
        });
        (row, cells.collect())
    });
    compare("What commands do", rows.collect());
}

#[test]
fn what_commands_do_to_a_message_that_expired_while_it_was_held() {
    let before = Standing { expires: Some(at(NOW_MS)), ..leased(true) };
    let rows = commands(RIGHT).into_iter().map(|(row, command, limit)| {
        let settings = settings_of(row);
        let applied = apply(&before, &command, now(), rules(limit, &settings));
        (row, vec![("leased, right token", outcome(&before, applied))])
    });
    compare("Held past its expiry", rows.collect());
}

/// The paragraph below that table: in a queue that drops expired messages, whatever would be dead by its expiry is
/// gone, and nothing else differs.
#[test]
fn what_would_be_dead_by_its_expiry_is_gone_where_the_queue_drops_it() {
    let (plain, dropping) = (Settings::default(), dropping());
    let situations = situations().into_iter().map(|(_, standing, _)| standing);
    let (mut gone, mut same) = (0, 0);
    for before in situations.chain([Standing { expires: Some(at(NOW_MS)), ..leased(true) }]) {
        for (row, command, limit) in commands(RIGHT) {
            let kept = apply(&before, &command, now(), rules(limit, &plain));
            let dropped = apply(&before, &command, now(), rules(limit, &dropping));
            let expires = |standing: &Standing| {
                let by_expiry = |death: Death| death.reason == DeathReason::Expired;
                matches!(standing.state, State::Dead(death) if by_expiry(death))
            };
            match kept {
                Ok(Transition { next: Some(next), effects }) if expires(&next) && !expires(&before) => {
                    gone += 1;
                    let effects = dwell_model::Effects { dropped: true, ..effects };
                    assert_eq!(dropped, Ok(Transition { next: None, effects }), "{row} on {before:?}");
                }
                kept => {
                    same += 1;
                    assert_eq!(dropped, kept, "{row} on {before:?}");
                }
            }
        }
    }
    assert!(gone >= 9 && same > gone, "{gone} gone, {same} alike");
}

/// The one row that the table has for lapses: the lapse from which a message waits, the end of that wait, and that
/// every reader computes the same instant.
#[test]
fn a_lapse_waits_for_the_backoff_of_its_queue_from_the_attempt_on_that_it_says() {
    let lapsed = |attempts| {
        let lease = Lease { deadline_mono_ms: now().mono_ms, ..Lease::granted(RIGHT, 5_000, false, now()) };
        Standing { attempts, expires: None, ..standing(State::Leased(lease)) }
    };
    let deadline = at(NOW_MS + 5_000);
    for (from, waits) in [
        (LapseBackoff::Never, [false, false, false]),
        (LapseBackoff::Second, [false, true, true]),
        (LapseBackoff::First, [true, true, true]),
    ] {
        let settings = Settings { lapse_backoff: from, ..Settings::default() };
        let rules = rules(AttemptLimit::Unlimited, &settings);
        for (before, waits) in (0..).zip(waits) {
            let next = as_of(&lapsed(before), now(), rules).unwrap();
            let delay_ms = settings.backoff.lapse_delay_ms(rules.id, before + 1);
            let (state, due) = match waits {
                true => (State::Scheduled, deadline.after(delay_ms).unwrap()),
                false => (State::Ready, at(NOW_MS - 10_000)),
            };
            assert_eq!((next.state, next.due), (state, due), "{from:?} with {before} spent");
            let late = Now { wall: at(NOW_MS + 90_000), mono_ms: 140_000 };
            let noticed_late = as_of(&lapsed(before), late, rules).unwrap();
            assert_eq!((noticed_late.state, noticed_late.due), (State::Ready, due), "past already");
        }
    }
    let settings = backing_off();
    let freed =
        apply(&leased(true), &Command::EndSession, now(), rules(ATTEMPTS_LEFT, &settings)).unwrap().next;
    let delay_ms = settings.backoff.lapse_delay_ms(rules(ATTEMPTS_LEFT, &settings).id, 3);
    assert_eq!(freed.map(|freed| freed.due), now().wall.after(delay_ms).ok(), "from the moment it is freed");
}

#[test]
fn a_holder_is_known_while_it_holds_and_no_longer() {
    let settings = Settings::default();
    let rules = rules(ATTEMPTS_LEFT, &settings);
    let holder = Some("worker 7".parse().unwrap());
    let grant = Grant { token: WRONG, lease_ms: 3_000, session: true, holder: holder.clone() };
    let mut held = standing(State::Ready);
    apply_take(&mut held, &grant, now(), rules).unwrap();
    assert_eq!(held.holder, holder);
    let mut ended = 0;
    for (row, command, _) in commands(WRONG) {
        let Ok(Transition { next: Some(next), .. }) = apply(&held, &command, now(), rules) else { continue };
        let still = matches!(next.state, State::Leased(_));
        ended += u32::from(!still);
        assert_eq!(next.holder, holder.clone().filter(|_| still), "{row}");
    }
    assert!(ended > 5, "{ended}");
    let later = Now { wall: at(NOW_MS + 3_000), mono_ms: 53_000 };
    assert_eq!(as_of(&held, later, rules).unwrap().holder, None);
}

/// The ground rule behind the two tables: a command sees the message as time has left it. Only what else the store has
/// to do is derived from what is stored.
#[test]
fn time_comes_before_every_command() {
    let lapsed = Lease { deadline_mono_ms: now().mono_ms, ..Lease::granted(RIGHT, 5_000, true, now()) };
    let mut stored: Vec<Standing> = situations().into_iter().map(|(_, standing, _)| standing).collect();
    stored.push(standing(State::Leased(lapsed)));
    let settings = Settings::default();
    let mut visited = 0;
    for standing in stored {
        for due in [NOW_MS - 1, NOW_MS, NOW_MS + 1].map(at) {
            for expires in [None, Some(at(NOW_MS)), Some(at(EXPIRES_MS))] {
                for (row, command, limit) in commands(RIGHT) {
                    let standing = Standing { due, expires, ..standing.clone() };
                    let rules = rules(limit, &settings);
                    let seen = as_of(&standing, now(), rules).unwrap();
                    let direct = apply(&standing, &command, now(), rules);
                    let staged = apply(&seen, &command, now(), rules);
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

/// The question that a store asks with the lease alone.
#[test]
fn an_ack_depends_on_token_and_deadline_alone() {
    let granted = now();
    let settings = Settings::default();
    for lease_ms in [0, 1, 5_000] {
        let lease = Lease::granted(RIGHT, lease_ms, false, granted);
        for token in [RIGHT, WRONG] {
            for later_ms in [0, 1, 2, 4_999, 5_000, 90_000] {
                let later = Now {
                    wall: at(NOW_MS + later_ms),
                    mono_ms: granted.mono_ms + u64::try_from(later_ms).unwrap(),
                };
                let standing = standing(State::Leased(lease));
                let applied = apply(&standing, &Command::Ack(token), later, rules(ATTEMPTS_LEFT, &settings));
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
    let grant = Grant { token: WRONG, lease_ms: 3_000, session: true, holder: None };
    let all = [Settings::default(), dropping(), backing_off()];
    let states = [State::Scheduled, State::Ready].map(standing);
    let states = states.into_iter().chain([leased(false), leased(true), dead(DeathReason::Buried)]);
    for standing in states {
        for later in [now(), Now { wall: at(NOW_MS + 10_000), mono_ms: 50_001 }, lapsed, expired] {
            for (limit, settings) in [ATTEMPTS_LEFT, LAST_ATTEMPT]
                .into_iter()
                .flat_map(|limit| all.iter().map(move |of| (limit, of)))
            {
                let rules = rules(limit, settings);
                let applied = apply(&standing, &Command::Take(grant.clone()), later, rules);
                let expected = applied.map(|transition| transition.next.unwrap());
                let mut next = standing.clone();
                let taken = apply_take(&mut next, &grant, later, rules).map(|()| next);
                assert_eq!(taken, expected, "{standing:?} {later:?}");
            }
        }
    }
}
