//! The parser under random input: commands as clients may write them, and mixtures of everything that a line may
//! contain. A failure saves its seed in `proptest-regressions/`, which the next run begins with.

use proptest::collection::vec;
use proptest::prelude::*;

use bytes::{Bytes, BytesMut};
use dwell_model::QueueName;

use crate::beanstalkd::{Command, Frame, Parser, PutJob};
use crate::fuzzing::{beanstalkd, written};

const LIMIT: usize = 300;

fn tubes() -> impl Strategy<Value = QueueName> {
    "[A-Za-z0-9+/;$_():@][A-Za-z0-9+/;$_():@.-]{0,30}".prop_map(|name| QueueName::new(&name).unwrap())
}

fn puts() -> impl Strategy<Value = Command> {
    let body = prop_oneof![vec(any::<u8>(), 0..40), "[\r\n]{0,6}".prop_map(String::into_bytes)];
    (any::<u32>(), any::<u32>(), 1..=u32::MAX, body).prop_map(|(priority, delay_s, ttr_s, body)| {
        Command::Put(PutJob { priority, delay_s, ttr_s, body: Bytes::from(body) })
    })
}

fn commands() -> impl Strategy<Value = Command> {
    let (long, short) = (any::<u64>, any::<u32>);
    prop_oneof![
        4 => puts(),
        1 => tubes().prop_map(Command::Use),
        1 => any::<Option<u32>>().prop_map(|timeout_s| Command::Reserve { timeout_s }),
        1 => long().prop_map(Command::ReserveJob),
        1 => long().prop_map(Command::Delete),
        1 => (long(), short(), short())
            .prop_map(|(number, priority, delay_s)| Command::Release { number, priority, delay_s }),
        1 => (long(), short()).prop_map(|(number, priority)| Command::Bury { number, priority }),
        1 => long().prop_map(Command::Touch),
        1 => tubes().prop_map(Command::Watch),
        1 => tubes().prop_map(Command::Ignore),
        1 => long().prop_map(Command::Peek),
        1 => Just(()).prop_map(|()| Command::PeekReady),
        1 => Just(()).prop_map(|()| Command::PeekDelayed),
        1 => Just(()).prop_map(|()| Command::PeekBuried),
        1 => long().prop_map(Command::Kick),
        1 => long().prop_map(Command::KickJob),
        1 => Just(()).prop_map(|()| Command::Stats),
        1 => tubes().prop_map(Command::StatsTube),
        1 => long().prop_map(Command::StatsJob),
        1 => Just(()).prop_map(|()| Command::ListTubes),
        1 => Just(()).prop_map(|()| Command::ListTubeUsed),
        1 => Just(()).prop_map(|()| Command::ListTubesWatched),
        1 => (tubes(), short()).prop_map(|(tube, delay_s)| Command::PauseTube { tube, delay_s }),
        1 => Just(()).prop_map(|()| Command::Quit),
    ]
}

/// Writes `command` with spaces and zeros before its numbers, as beanstalkd lets clients write them.
fn loosely(command: &Command, spaces: usize, zeros: usize) -> Vec<u8> {
    let bytes = written(command);
    let end = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
    let (line, rest) = bytes.split_at(end);
    let line = std::str::from_utf8(line).unwrap();
    let mut words = line.split(' ');
    let mut loose = words.next().unwrap().to_owned();
    // These are followed by a name alone, which is taken as it is.
    let has_name_alone = ["use", "watch", "ignore", "stats-tube"].contains(&loose.as_str());
    for word in words {
        let is_number = !has_name_alone && word.bytes().all(|byte| byte.is_ascii_digit());
        let padding = if is_number { "0".repeat(zeros) } else { String::new() };
        // The tube precedes the number; if its name has digits alone, zeros would become part of the name.
        let padding = if loose.starts_with("pause-tube") && !loose.contains(' ') { "" } else { &padding };
        let spaces = if has_name_alone { 0 } else { spaces };
        loose.push_str(&" ".repeat(1 + spaces));
        loose.push_str(padding);
        loose.push_str(word);
    }
    [loose.as_bytes(), rest].concat()
}

/// Pieces of lines, good and bad.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: [&str; 47] = [
        "put ",
        "use ",
        "reserve",
        "reserve-with-timeout ",
        "reserve-job ",
        "delete ",
        "release ",
        "bury ",
        "touch ",
        "watch ",
        "ignore ",
        "peek ",
        "peek-ready",
        "peek-delayed",
        "peek-buried",
        "kick ",
        "kick-job ",
        "stats",
        "stats-tube ",
        "stats-job ",
        "list-tubes",
        "list-tube-used",
        "list-tubes-watched",
        "pause-tube ",
        "quit",
        "\r\n",
        "\r\n",
        "\r\n",
        "\r",
        "\n",
        " ",
        "  ",
        "-",
        "-1 ",
        "0 ",
        "1 ",
        "007 ",
        "5 ",
        "4294967295 ",
        "4294967296 ",
        "18446744073709551615",
        "18446744073709551616",
        "a",
        "GET ",
        "put 0 0 0 3\r\nabc\r\n",
        "put 0 0 0 3\r\n",
        "put 0 0 0 90\r\n",
    ];
    prop_oneof![
        12 => proptest::sample::select(&WORDS[..]).prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 1..5),
        1 => (any::<u8>(), 1..260_usize).prop_map(|(byte, times)| vec![byte; times]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(1_000)))]

    #[test]
    fn commands_are_read_as_they_were_meant_wherever_they_are_cut(
        commands in vec((commands(), 0..4_usize, 0..4_usize), 1..12),
        pieces in vec(1..40_usize, 1..8),
    ) {
        let sent: Vec<u8> =
            commands.iter().flat_map(|(command, spaces, zeros)| loosely(command, *spaces, *zeros)).collect();
        let mut parser = Parser::new(LIMIT);
        let mut buffer = BytesMut::new();
        let mut found = Vec::new();
        let mut rest = &sent[..];
        for len in pieces.iter().cycle() {
            let (piece, after) = rest.split_at(rest.len().min(*len));
            buffer.extend_from_slice(piece);
            found.extend(std::iter::from_fn(|| parser.next(&mut buffer)));
            if after.is_empty() {
                break;
            }
            rest = after;
        }
        let meant: Vec<Frame> = commands.into_iter().map(|(command, ..)| Frame::Command(command)).collect();
        prop_assert_eq!(found, meant);
        prop_assert!(buffer.is_empty() && parser.is_between_commands());
    }

    #[test]
    fn any_mixture_is_read_as_the_second_reading_reads_it(
        limit in any::<u8>(),
        pieces in vec(any::<u8>(), 0..15),
        fragments in vec(fragments(), 0..60),
    ) {
        let sent = fragments.concat();
        beanstalkd(&[&[limit, pieces.len() as u8], &pieces[..], &sent].concat());
    }
}
