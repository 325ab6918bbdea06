//! Parses bytes into commands, without I/O, in pieces of any size.
//!
//! Ground rules, each as observed of beanstalkd 1.12:
//! 1. A line ends with CR LF and has at most [`MAX_LINE`] bytes with them. A longer one is skipped up to its
//!    end and is `BAD_FORMAT`.
//! 2. A `put` line that is malformed has no body: what follows is read as commands.
//! 3. A body over the limit is skipped before it is refused; so is one for which there is no room.
//! 4. A body is followed by CR LF. If it is not, those two bytes are dropped, and what follows is a command.
//!
//! One rule is dwell's: a line of any length that looks like HTTP or TLS ends the connection, since a web page in a
//! browser may have chosen the next line.

use bytes::{Buf, Bytes, BytesMut};

use super::command::{Command, PutLine};

/// The longest line, with its CR LF: `pause-tube`, a name of 200 bytes and the longest number.
pub(crate) const MAX_LINE: usize = 224;

/// Shorter bodies are copied, so that a message does not keep the whole read buffer in memory.
const COPIED_BODY: usize = 16 * 1024;

/// The line does not match its verb's syntax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// A result of the parser.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A command, with its body if it is a put.
    Command(Command),
    /// A known verb with invalid arguments, or a line that is too long.
    BadFormat,
    /// The verb does not exist.
    UnknownCommand,
    /// The body of a put was longer than it said.
    ExpectedCrlf,
    /// The body of a put was over the limit; it has been read.
    JobTooBig,
    /// There was no room for the body of a put; it has been read.
    NoRoom,
    /// The line is HTTP or TLS.
    Foreign,
}

/// The parser's state.
#[derive(Debug)]
enum At {
    /// At the beginning of a line.
    Line,
    /// Within a line that is too long.
    LongLine,
    /// At the body of a put.
    Body(PutLine),
    /// Within a body that is discarded, with the bytes of it and its CR LF that are to come.
    Skipping(u64, Unwanted),
}

/// Why a body is skipped.
#[derive(Clone, Copy, Debug)]
enum Unwanted {
    TooLong,
    NoRoom,
}

/// The parser of one connection's bytes.
#[derive(Debug)]
pub(crate) struct Parser {
    at: At,
    body_limit: usize,
}

impl Parser {
    /// At the beginning of a connection; bodies have at most `body_limit` bytes.
    pub(crate) fn new(body_limit: usize) -> Parser {
        Parser { at: At::Line, body_limit }
    }

    /// Whether no command has been read in part.
    pub(crate) fn is_between_commands(&self) -> bool {
        matches!(self.at, At::Line)
    }

    /// Whether a body has arrived in part, whether it is discarded or not.
    pub(crate) fn is_in_body(&self) -> bool {
        matches!(self.at, At::Body(_) | At::Skipping(..))
    }

    /// The length of the body that has arrived in part.
    pub(crate) fn coming_body(&self) -> Option<usize> {
        match &self.at {
            At::Body(put) => Some(put.len()),
            At::Line | At::LongLine | At::Skipping(..) => None,
        }
    }

    /// Refuses the body that is arriving: what has arrived of it is dropped, and the rest is skipped.
    pub(crate) fn refuse_body(&mut self, bytes: &mut BytesMut) {
        if let At::Body(put) = &self.at {
            let left = put.len() as u64 + 2 - bytes.len() as u64;
            bytes.clear();
            self.at = At::Skipping(left, Unwanted::NoRoom);
        }
    }

    /// Takes the next command off the front of `bytes`; `None` until more has arrived.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> Option<Frame> {
        loop {
            match &self.at {
                At::Line => {
                    if begins_foreign(bytes) {
                        bytes.clear();
                        return Some(Frame::Foreign);
                    }
                    let Some(end) = line_end(&bytes[..bytes.len().min(MAX_LINE)]) else {
                        if bytes.len() < MAX_LINE {
                            return None;
                        }
                        self.at = At::LongLine;
                        continue;
                    };
                    let line = bytes.split_to(end);
                    bytes.advance(2);
                    if has_foreign_end(&line) {
                        bytes.clear();
                        return Some(Frame::Foreign);
                    }
                    match parse_line(&line) {
                        FrameLine::Done(frame) => return Some(frame),
                        // The size is checked first, as beanstalkd does: a body that is too long is skipped in any
                        // case.
                        FrameLine::Put(put, _) if put.len() > self.body_limit => {
                            self.at = At::Skipping(put.len() as u64 + 2, Unwanted::TooLong);
                        }
                        FrameLine::Put(_, Err(Malformed)) => return Some(Frame::BadFormat),
                        FrameLine::Put(put, Ok(())) => self.at = At::Body(put),
                    }
                }
                At::LongLine => {
                    let Some(end) = line_end(bytes) else {
                        // The last bytes may be the end of an HTTP request line, and a CR at the very end half of the
                        // line's end.
                        let keep = bytes.len().min(FOREIGN_END + 1);
                        bytes.advance(bytes.len() - keep);
                        return None;
                    };
                    if has_foreign_end(&bytes[..end]) {
                        bytes.clear();
                        return Some(Frame::Foreign);
                    }
                    bytes.advance(end + 2);
                    self.at = At::Line;
                    return Some(Frame::BadFormat);
                }
                At::Body(put) => {
                    let len = put.len();
                    if bytes.len() < len + 2 {
                        return None;
                    }
                    let body = take_body(bytes, len);
                    let ended = bytes.starts_with(b"\r\n");
                    bytes.advance(2);
                    let put = put.with_body(body);
                    self.at = At::Line;
                    return Some(if ended { Frame::Command(Command::Put(put)) } else { Frame::ExpectedCrlf });
                }
                At::Skipping(left, why) => {
                    let (left, why) = (*left, *why);
                    let skipped = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    bytes.advance(skipped);
                    let left = left - skipped as u64;
                    if left > 0 {
                        self.at = At::Skipping(left, why);
                        return None;
                    }
                    self.at = At::Line;
                    return Some(match why {
                        Unwanted::TooLong => Frame::JobTooBig,
                        Unwanted::NoRoom => Frame::NoRoom,
                    });
                }
            }
        }
    }
}

enum FrameLine {
    Done(Frame),
    /// A put, whose body follows; and whether nothing followed its size.
    Put(PutLine, Result<(), Malformed>),
}

fn parse_line(line: &[u8]) -> FrameLine {
    // All verbs and arguments are ASCII; beanstalkd calls a line with a NUL malformed before it checks the verb.
    if line.contains(&0) {
        return FrameLine::Done(Frame::BadFormat);
    }
    let (text, is_text) = match std::str::from_utf8(line) {
        Ok(text) => (text, true),
        Err(error) => (std::str::from_utf8(&line[..error.valid_up_to()]).unwrap_or_default(), false),
    };
    // When the size is too large, anything may follow the numbers of a put.
    match PutLine::parse(text) {
        Some(Ok((put, end))) => return FrameLine::Put(put, if is_text { end } else { Err(Malformed) }),
        Some(Err(Malformed)) => return FrameLine::Done(Frame::BadFormat),
        None if !is_text => return FrameLine::Done(not_text(line)),
        None => {}
    }
    FrameLine::Done(match Command::parse(text) {
        Some(Ok(command)) => Frame::Command(command),
        Some(Err(Malformed)) => Frame::BadFormat,
        None => Frame::UnknownCommand,
    })
}

/// A line that is not UTF-8 is never valid; the refusal depends on its verb alone.
fn not_text(line: &[u8]) -> Frame {
    let is_known = Command::verbs().any(|verb| line.starts_with(verb.as_bytes()));
    if is_known { Frame::BadFormat } else { Frame::UnknownCommand }
}

/// The end of the line that these bytes begin with.
fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n")
}

fn take_body(bytes: &mut BytesMut, len: usize) -> Bytes {
    if len >= COPIED_BODY {
        return bytes.split_to(len).freeze();
    }
    let body = Bytes::copy_from_slice(&bytes[..len]);
    bytes.advance(len);
    body
}

/// The length of the end of an HTTP request line.
const FOREIGN_END: usize = " HTTP/1.1".len();

/// Whether a line ends like an HTTP request line, with any method.
fn has_foreign_end(line: &[u8]) -> bool {
    line.last_chunk::<FOREIGN_END>().is_some_and(|end| {
        end.starts_with(b" HTTP/") && end[6].is_ascii_digit() && end[7] == b'.' && end[8].is_ascii_digit()
    })
}

/// Whether a line begins like an HTTP request line, with a method in capitals and a path, an address or an asterisk; or
/// with a TLS record that begins a handshake.
fn begins_foreign(bytes: &[u8]) -> bool {
    if bytes.starts_with(&[0x16, 0x03]) {
        return true;
    }
    // No method is longer, and no verb of beanstalkd is in capitals.
    let method = bytes.iter().take(32).take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    let target = bytes[method..].strip_prefix(b" ");
    method > 0 && target.and_then(<[u8]>::first).is_some_and(|first| !first.is_ascii_control())
}

#[cfg(test)]
mod random;

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 64 * 1024;

    /// All frames of `bytes`, given at once, and the number of bytes left.
    fn frames(bytes: &[u8]) -> (Vec<Frame>, usize) {
        let mut buffer = BytesMut::from(bytes);
        let mut parser = Parser::new(LIMIT);
        let frames = std::iter::from_fn(|| parser.next(&mut buffer)).collect();
        (frames, buffer.len())
    }

    fn only(line: &str) -> Frame {
        let (mut frames, left) = frames(format!("{line}\r\n").as_bytes());
        assert_eq!((frames.len(), left), (1, 0), "{line}: {frames:?}");
        frames.remove(0)
    }

    fn tube(name: &str) -> dwell_model::QueueName {
        name.parse().unwrap()
    }

    #[test]
    fn every_command_is_read() {
        for (line, command) in [
            ("use a", Command::Use(tube("a"))),
            ("reserve", Command::Reserve { timeout_s: None }),
            ("reserve-with-timeout 007", Command::Reserve { timeout_s: Some(7) }),
            ("reserve-with-timeout   0", Command::Reserve { timeout_s: Some(0) }),
            ("reserve-with-timeout -1", Command::Reserve { timeout_s: None }),
            ("reserve-job 5", Command::ReserveJob(5)),
            ("delete  18446744073709551615", Command::Delete(u64::MAX)),
            ("release 1 2 3", Command::Release { number: 1, priority: 2, delay_s: 3 }),
            ("bury 1  2", Command::Bury { number: 1, priority: 2 }),
            ("touch 9", Command::Touch(9)),
            ("watch a", Command::Watch(tube("a"))),
            ("ignore a", Command::Ignore(tube("a"))),
            ("peek 1", Command::Peek(1)),
            ("peek-ready", Command::PeekReady),
            ("peek-delayed", Command::PeekDelayed),
            ("peek-buried", Command::PeekBuried),
            ("kick 100", Command::Kick(100)),
            ("kick-job 4", Command::KickJob(4)),
            ("stats", Command::Stats),
            ("stats-tube a", Command::StatsTube(tube("a"))),
            ("stats-job 1", Command::StatsJob(1)),
            ("list-tubes", Command::ListTubes),
            ("list-tube-used", Command::ListTubeUsed),
            ("list-tubes-watched", Command::ListTubesWatched),
            ("pause-tube  a  60", Command::PauseTube { tube: tube("a"), delay_s: 60 }),
            ("quit", Command::Quit),
        ] {
            assert_eq!(only(line), Frame::Command(command), "{line}");
        }
    }

    #[test]
    fn a_put_has_its_body_behind_it() {
        let (frames, left) = frames(b"put 1  2 003 5\r\nhel\r\n\r\nput 0 0 0 0\r\n\r\nput");
        assert_eq!(left, 3);
        let Frame::Command(Command::Put(first)) = &frames[0] else { panic!("{frames:?}") };
        assert_eq!((first.priority, first.delay_s, first.ttr_s), (1, 2, 3));
        assert_eq!(&first.body[..], b"hel\r\n");
        let Frame::Command(Command::Put(second)) = &frames[1] else { panic!("{frames:?}") };
        assert_eq!(second.ttr_s, 1, "a TTR of 0 is 1");
        assert!(second.body.is_empty());
        assert_eq!(frames.len(), 2);
    }

    #[test]
    fn bad_arguments_are_told_from_unknown_verbs() {
        for line in [
            "use ",
            "use  a",
            "use -a",
            "use a b",
            "use \u{e4}",
            "watch ",
            "ignore  x",
            "put ",
            "put 1",
            "put a 0 0 0",
            "put -1 0 0 0",
            "put 4294967296 0 0 0",
            "put 0 4294967296 0 0",
            "put 0 0 4294967296 0",
            "put 0 0 0 4294967296",
            "put 0 0 0 0 ",
            "put 0 0 0 0x",
            "delete ",
            "delete x",
            "delete -1",
            "delete 5 ",
            "delete 1 2",
            "delete 18446744073709551616",
            "release 1",
            "release 1 2",
            "release 1 2 3 4",
            "release 1 2 x",
            "bury 1",
            "bury 1 x",
            "bury 1 2 3",
            "touch ",
            "touch x",
            "reserve ",
            "reserved",
            "reserve-with-timeout",
            "reserve-with-timeout ",
            "reserve-with-timeout x",
            "reserve-with-timeout 1x",
            "reserve-with-timeout 4294967296",
            "reserve-job",
            "reserve-job x",
            "peek ",
            "peek x",
            "peek-ready x",
            "peek-delayed ",
            "peek-buriedx",
            "kick ",
            "kick x",
            "kick -1",
            "kick 5x",
            "kick 1 2",
            "kick-job ",
            "kick-job x",
            "stats ",
            "statsx",
            "stats-tube",
            "stats-tube ",
            "stats-job",
            "stats-job x",
            "list-tubes ",
            "list-tubesx",
            "list-tube-used ",
            "list-tubes-watched x",
            "pause-tube",
            "pause-tube ",
            "pause-tube a",
            "pause-tube a x",
            "pause-tube a 1 ",
            "pause-tube a 4294967296",
            "pause-tube -a 1",
            "quit ",
            "quit foo",
            "stats\0",
            "foo\0",
        ] {
            assert_eq!(only(line), Frame::BadFormat, "{line:?}");
        }
        for line in [
            "",
            " ",
            "foo",
            "put",
            "use",
            "watch",
            "ignore",
            "delete",
            "release",
            "bury",
            "touch",
            "peek",
            "kick",
            "kick-job",
            "kickjob 1",
            "PUT",
            "Use a",
            " use a",
            "list",
            "list-tube",
            "get",
            "\u{e4}",
        ] {
            assert_eq!(only(line), Frame::UnknownCommand, "{line:?}");
        }
        assert_eq!(frames(b"use \xff\r\n\xff\r\n").0, [Frame::BadFormat, Frame::UnknownCommand]);
    }

    #[test]
    fn a_refused_put_line_has_no_body() {
        let (frames, _) = frames(b"put 0 0 x 5\r\nhello\r\nput 0 0 0 1 \r\n");
        assert_eq!(frames, [Frame::BadFormat, Frame::UnknownCommand, Frame::BadFormat]);
    }

    #[test]
    fn a_body_without_its_crlf_is_refused_and_what_follows_is_a_command() {
        let (frames, left) = frames(b"put 0 0 0 3\r\nhelloreserve\r\nstats\r\n");
        assert_eq!(left, 0);
        assert_eq!(
            frames,
            [
                Frame::ExpectedCrlf,
                Frame::Command(Command::Reserve { timeout_s: None }),
                Frame::Command(Command::Stats)
            ]
        );
    }

    #[test]
    fn a_body_over_the_limit_is_read_and_refused_and_one_at_the_limit_is_taken() {
        let at_limit = [format!("put 0 0 0 {LIMIT}\r\n").as_bytes(), &vec![b'x'; LIMIT], b"\r\n"].concat();
        assert!(
            matches!(&frames(&at_limit).0[..], [Frame::Command(Command::Put(put))] if put.body.len() == LIMIT)
        );
        // What follows the size only matters when the size is accepted.
        for end in [b"" as &[u8], b" x", b"x", b" \xff", b"\xff"] {
            let over = [
                format!("put 0 0 0 {}", LIMIT + 1).as_bytes(),
                end,
                b"\r\n",
                &vec![b'x'; LIMIT + 1],
                b"\r\nquit\r\n",
            ]
            .concat();
            assert_eq!(frames(&over).0, [Frame::JobTooBig, Frame::Command(Command::Quit)], "{end:?}");
        }
    }

    #[test]
    fn a_line_has_at_most_224_bytes() {
        assert_eq!(only(&"a".repeat(MAX_LINE - 2)), Frame::UnknownCommand);
        for len in [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 1_000_000] {
            assert_eq!(only(&"a".repeat(len)), Frame::BadFormat, "{len}");
        }
        let (found, left) = frames(&[&b"a".repeat(500)[..], b"\nstats\r\nstats\r\n"].concat());
        assert_eq!(
            (found, left),
            (vec![Frame::BadFormat, Frame::Command(Command::Stats)], 0),
            "LF alone ends no line"
        );
    }

    #[test]
    fn http_is_foreign_and_nothing_after_it_is_read() {
        let methods = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "CONNECT", "TRACE"];
        for method in methods.into_iter().chain(["PROPFIND", "BASELINE-CONTROL", "M-SEARCH", "ANY"]) {
            for target in ["/", "*", "http://x/", "x:443"] {
                let rest = "a".repeat(300);
                let request = format!("{method} {target}{rest} HTTP/1.1\r\nHost: x\r\n\r\nstats\r\n");
                assert_eq!(frames(request.as_bytes()), (vec![Frame::Foreign], 0), "{method} {target}");
            }
        }
        assert_eq!(frames(b"POS").0, []);
        // By its end, with anything before it, of any length, and cut anywhere.
        for version in ["0.9", "1.0", "1.1", "2.0", "3.0"] {
            for len in [0, 1, 200, 205, 206, 207, 208, 230, 1_000] {
                let line = format!("any {}/ HTTP/{version}\r\nput 1 0 60 1\r\nx\r\n", "a".repeat(len));
                assert_eq!(frames(line.as_bytes()), (vec![Frame::Foreign], 0), "{version} {len}");
                let (mut parser, mut bytes) = (Parser::new(LIMIT), BytesMut::new());
                let first = line.bytes().find_map(|byte| {
                    bytes.extend_from_slice(&[byte]);
                    parser.next(&mut bytes)
                });
                assert_eq!(first, Some(Frame::Foreign), "{version} {len}");
            }
        }
        // The server that a TLS client believes it talks to can choose the ticket that the client sends.
        assert_eq!(frames(b"\x16\x03\x01\x02\x00\r\nput 0 0 60 1\r\nx\r\n"), (vec![Frame::Foreign], 0));
        assert_eq!(frames(b"PUT\r\nA \r\n").0, [Frame::UnknownCommand, Frame::UnknownCommand]);
    }

    #[test]
    fn a_body_that_is_refused_as_it_comes_is_skipped_and_what_follows_is_a_command() {
        for come in [0, 1, 99, 100, 101] {
            let mut parser = Parser::new(LIMIT);
            let mut bytes = BytesMut::from(&b"put 0 0 0 100\r\n"[..]);
            let body = [&b"x".repeat(100)[..], b"\r\n"].concat();
            bytes.extend_from_slice(&body[..come]);
            assert_eq!(parser.next(&mut bytes), None);
            parser.refuse_body(&mut bytes);
            assert!(bytes.is_empty() && parser.is_in_body() && parser.coming_body().is_none());
            assert_eq!(parser.next(&mut bytes), None);
            bytes.extend_from_slice(&body[come..]);
            bytes.extend_from_slice(b"quit\r\n");
            assert_eq!(parser.next(&mut bytes), Some(Frame::NoRoom), "{come}");
            assert_eq!(parser.next(&mut bytes), Some(Frame::Command(Command::Quit)));
        }
        // Without a body there is none to refuse.
        let (mut parser, mut bytes) = (Parser::new(LIMIT), BytesMut::from(&b"qu"[..]));
        parser.refuse_body(&mut bytes);
        assert_eq!(&bytes[..], b"qu");
    }

    #[test]
    fn the_cuts_between_reads_change_nothing() {
        let mut input = b"put 0 0 0 3\r\nab\r\r\nput 0 0 0 2\r\nabcd".to_vec();
        input.extend_from_slice(&b"x".repeat(MAX_LINE - 1));
        input.extend_from_slice(b"\r\nput 0 0 0 65537\r\n");
        input.extend_from_slice(&b"y".repeat(65_537));
        input.extend_from_slice(b"\r\nreserve\r\n\r\r\nuse a\r\n");
        let (whole, _) = frames(&input);
        for step in [1, 2, 3, 7, 223, 224, 225, 4096] {
            let mut parser = Parser::new(LIMIT);
            let mut buffer = BytesMut::new();
            let mut found = Vec::new();
            for piece in input.chunks(step) {
                buffer.extend_from_slice(piece);
                found.extend(std::iter::from_fn(|| parser.next(&mut buffer)));
            }
            assert_eq!(found, whole, "in steps of {step}");
        }
    }
}
