//! Bytes of a beanstalkd connection: the commands must be the same wherever the bytes are cut, and the same that a
//! second parser finds.
//!
//! The second parser has all bytes at once and has no states, and picks the longest verb that matches. Both use the
//! model's tube names.

use bytes::{BufMut as _, BytesMut};
use dwell_model::QueueName;

use crate::beanstalkd::{Command, Frame, MAX_LINE, Parser, PutJob};

/// The first byte is the maximum body length, the second the number of piece lengths that follow (one byte each,
/// repeated from the first at the end); the rest is what the client sends.
pub fn beanstalkd(data: &[u8]) {
    let [limit, count, rest @ ..] = data else { return };
    let limit = usize::from(*limit);
    let (pieces, sent) = rest.split_at(rest.len().min(usize::from(count % 16)));
    let expected = expected(sent, limit);
    let whole = frames(sent, &[sent.len().max(1)], limit);
    assert_eq!(told(&whole), expected, "in one piece");
    let pieces: Vec<usize> = pieces.iter().map(|len| usize::from(*len).max(1)).collect();
    if !pieces.is_empty() {
        assert_eq!(frames(sent, &pieces, limit), whole, "in pieces of {pieces:?}");
    }
    assert_eq!(frames(sent, &[1], limit), whole, "byte by byte");
    for frame in whole {
        let Frame::Command(command) = frame else { continue };
        let again = frames(&written(&command), &[7], limit);
        assert_eq!(again, [Frame::Command(command)], "a command is read as it is written");
    }
}

/// All frames of `sent`, which arrives in pieces of these lengths, repeated from the first at the end.
fn frames(sent: &[u8], pieces: &[usize], limit: usize) -> Vec<Frame> {
    let mut parser = Parser::new(limit);
    let mut buffer = BytesMut::new();
    let mut found = Vec::new();
    let mut rest = sent;
    for len in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(rest.len().min(*len));
        rest = after;
        buffer.extend_from_slice(piece);
        while let Some(frame) = parser.next(&mut buffer) {
            // What follows HTTP is never read.
            if frame == Frame::Foreign {
                found.push(frame);
                return found;
            }
            found.push(frame);
        }
        let most = MAX_LINE.max(limit + 2);
        assert!(buffer.len() < most, "{} bytes are kept of an unfinished command", buffer.len());
    }
    found
}

/// A command in its shortest form.
pub(crate) fn written(command: &Command) -> Vec<u8> {
    let line = match command {
        Command::Put(PutJob { priority, delay_s, ttr_s, body }) => {
            let mut bytes = format!("put {priority} {delay_s} {ttr_s} {}\r\n", body.len()).into_bytes();
            bytes.put_slice(body);
            bytes.put_slice(b"\r\n");
            return bytes;
        }
        Command::Use(tube) => format!("use {tube}"),
        Command::Reserve { timeout_s: None } => "reserve".to_owned(),
        Command::Reserve { timeout_s: Some(seconds) } => format!("reserve-with-timeout {seconds}"),
        Command::ReserveJob(number) => format!("reserve-job {number}"),
        Command::Delete(number) => format!("delete {number}"),
        Command::Release { number, priority, delay_s } => format!("release {number} {priority} {delay_s}"),
        Command::Bury { number, priority } => format!("bury {number} {priority}"),
        Command::Touch(number) => format!("touch {number}"),
        Command::Watch(tube) => format!("watch {tube}"),
        Command::Ignore(tube) => format!("ignore {tube}"),
        Command::Peek(number) => format!("peek {number}"),
        Command::PeekReady => "peek-ready".to_owned(),
        Command::PeekDelayed => "peek-delayed".to_owned(),
        Command::PeekBuried => "peek-buried".to_owned(),
        Command::Kick(bound) => format!("kick {bound}"),
        Command::KickJob(number) => format!("kick-job {number}"),
        Command::Stats => "stats".to_owned(),
        Command::StatsTube(tube) => format!("stats-tube {tube}"),
        Command::StatsJob(number) => format!("stats-job {number}"),
        Command::ListTubes => "list-tubes".to_owned(),
        Command::ListTubeUsed => "list-tube-used".to_owned(),
        Command::ListTubesWatched => "list-tubes-watched".to_owned(),
        Command::PauseTube { tube, delay_s } => format!("pause-tube {tube} {delay_s}"),
        Command::Quit => "quit".to_owned(),
    };
    format!("{line}\r\n").into_bytes()
}

/// A frame in the terms of both parsers.
#[derive(Debug, PartialEq, Eq)]
enum ParsedFrame {
    Written(Vec<u8>),
    BadFormat,
    UnknownCommand,
    ExpectedCrlf,
    JobTooBig,
    Foreign,
}

fn told(frames: &[Frame]) -> Vec<ParsedFrame> {
    let tell = |frame: &Frame| match frame {
        Frame::Command(command) => ParsedFrame::Written(written(command)),
        Frame::BadFormat => ParsedFrame::BadFormat,
        Frame::UnknownCommand => ParsedFrame::UnknownCommand,
        Frame::ExpectedCrlf => ParsedFrame::ExpectedCrlf,
        Frame::JobTooBig => ParsedFrame::JobTooBig,
        Frame::NoRoom => unreachable!("only who holds the memory refuses so"),
        Frame::Foreign => ParsedFrame::Foreign,
    };
    frames.iter().map(tell).collect()
}

/// The kind of an argument.
#[derive(Clone, Copy)]
enum Argument {
    /// A number below 2^64, or below 2^32.
    Long,
    Short,
    /// A number as above, or a negative number, which means none.
    Timeout,
    /// A tube's name after optional spaces, or one that takes all that remains.
    Tube,
    OnlyTube,
}

use Argument::{Long, OnlyTube, Short, Timeout, Tube};

const GRAMMAR: [(&str, &[Argument]); 25] = [
    ("put ", &[Short, Short, Short, Short]),
    ("use ", &[OnlyTube]),
    ("reserve", &[]),
    ("reserve-with-timeout ", &[Timeout]),
    ("reserve-job ", &[Long]),
    ("delete ", &[Long]),
    ("release ", &[Long, Short, Short]),
    ("bury ", &[Long, Short]),
    ("touch ", &[Long]),
    ("watch ", &[OnlyTube]),
    ("ignore ", &[OnlyTube]),
    ("peek ", &[Long]),
    ("peek-ready", &[]),
    ("peek-delayed", &[]),
    ("peek-buried", &[]),
    ("kick ", &[Long]),
    ("kick-job ", &[Long]),
    ("stats", &[]),
    ("stats-tube ", &[OnlyTube]),
    ("stats-job ", &[Long]),
    ("list-tubes", &[]),
    ("list-tube-used", &[]),
    ("list-tubes-watched", &[]),
    ("pause-tube", &[Tube, Short]),
    ("quit", &[]),
];

/// Whether HTTP or TLS begins here: judged by the first word and the byte after it, or the first two bytes.
fn begins_foreign(sent: &[u8]) -> bool {
    if let [0x16, 0x03, ..] = sent {
        return true;
    }
    let Some(space) = sent.iter().position(|byte| *byte == b' ').filter(|space| (1..=32).contains(space))
    else {
        return false;
    };
    let is_method = sent[..space].iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'-'));
    is_method && sent.get(space + 1).is_some_and(|byte| !matches!(byte, 0..=31 | 127))
}

/// Whether this is the end of an HTTP request line.
fn ends_foreign(line: &[u8]) -> bool {
    let [.., b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor] = line else { return false };
    matches!((major, minor), (b'0'..=b'9', b'0'..=b'9'))
}

/// The expected frames of `sent`, read at once.
fn expected(mut sent: &[u8], limit: usize) -> Vec<ParsedFrame> {
    let mut found = Vec::new();
    loop {
        if begins_foreign(sent) {
            found.push(ParsedFrame::Foreign);
            return found;
        }
        let Some(end) = sent.windows(2).position(|two| two == b"\r\n") else { return found };
        let line = &sent[..end];
        sent = &sent[end + 2..];
        if ends_foreign(line) {
            found.push(ParsedFrame::Foreign);
            return found;
        }
        let read = if end + 2 > MAX_LINE { Err(ParsedFrame::BadFormat) } else { read(line) };
        let (verb, arguments, rest) = match read {
            Ok(read) => read,
            Err(refused) => {
                found.push(refused);
                continue;
            }
        };
        let is_put = verb == "put ";
        let len = if is_put { arguments[3].parse().expect("it is a number") } else { 0 };
        if !rest.is_empty() && len <= limit {
            found.push(ParsedFrame::BadFormat);
            continue;
        }
        if !is_put {
            found.push(ParsedFrame::Written(line_of(verb, &arguments).into_bytes()));
            continue;
        }
        if sent.len() < len + 2 {
            return found;
        }
        let (body, after) = sent.split_at(len);
        let (crlf, after) = after.split_at(2);
        sent = after;
        found.push(if len > limit {
            ParsedFrame::JobTooBig
        } else if crlf != b"\r\n" {
            ParsedFrame::ExpectedCrlf
        } else {
            let line = line_of(verb, &arguments);
            ParsedFrame::Written([line.as_bytes(), body, crlf].concat())
        });
    }
}

/// A line's verb and arguments, and what follows them.
fn read(line: &[u8]) -> Result<(&'static str, Vec<String>, &[u8]), ParsedFrame> {
    if line.contains(&0) {
        return Err(ParsedFrame::BadFormat);
    }
    let fitting = GRAMMAR.iter().filter(|(verb, _)| line.starts_with(verb.as_bytes()));
    let Some((verb, shape)) = fitting.max_by_key(|(verb, _)| verb.len()) else {
        return Err(ParsedFrame::UnknownCommand);
    };
    let mut rest = &line[verb.len()..];
    let mut arguments = Vec::new();
    for argument in *shape {
        let (text, after) = argument.read(rest).ok_or(ParsedFrame::BadFormat)?;
        arguments.push(text);
        rest = after;
    }
    Ok((verb, arguments, rest))
}

impl Argument {
    /// The argument in its shortest form, and what follows it.
    fn read(self, text: &[u8]) -> Option<(String, &[u8])> {
        let spaces = text.iter().take_while(|byte| **byte == b' ').count();
        let spaced = &text[spaces..];
        match self {
            Long => number(spaced, u128::from(u64::MAX)),
            Short => number(spaced, u128::from(u32::MAX)),
            Timeout => match spaced.strip_prefix(b"-") {
                None => number(spaced, u128::from(u32::MAX)),
                Some(positive) => {
                    number(positive, u128::from(u64::MAX)).map(|(_, rest)| (String::new(), rest))
                }
            },
            Tube => {
                let len = spaced.iter().take_while(|byte| **byte != b' ').count();
                Some((tube(&spaced[..len])?, &spaced[len..]))
            }
            OnlyTube => Some((tube(text)?, &[])),
        }
    }
}

fn number(text: &[u8], most: u128) -> Option<(String, &[u8])> {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(len);
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let value = digits[zeros..].iter().try_fold(0_u128, |value, digit| {
        Some(value * 10 + u128::from(digit - b'0')).filter(|value| *value <= most)
    })?;
    (len > 0).then(|| (value.to_string(), rest))
}

fn tube(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    QueueName::new(name).ok().map(|name| name.to_string())
}

/// The line of a command, as [`written`] formats it.
fn line_of(verb: &str, arguments: &[String]) -> String {
    let mut arguments = arguments.to_vec();
    if verb == "put " && arguments[2] == "0" {
        "1".clone_into(&mut arguments[2]);
    }
    if verb.starts_with("reserve-with") && arguments[0].is_empty() {
        return "reserve\r\n".to_owned();
    }
    let words = std::iter::once(verb.trim_end()).chain(arguments.iter().map(String::as_str));
    words.collect::<Vec<&str>>().join(" ") + "\r\n"
}
