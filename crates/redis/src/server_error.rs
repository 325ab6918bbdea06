//! The parts of a server's error: its code, and the text after it.
//!
//! A server from 7.0 on answers with the code of whatever went wrong inside a script, and names the script after it.
//! An earlier one answers `ERR Error running script (call to f_…): `, then where in the script, and then what went
//! wrong, code first. What a script raises itself, or a library of Lua, has no code of the server's: it follows an
//! `ERR` in both, and in the earlier one the place where it was raised.
//!
//! So the kind of an error is decided by its beginning. After that come names of keys, which may be any text.

use redis::RedisError;

/// An error of the server, split into its parts.
#[derive(Debug, PartialEq, Eq)]
pub struct Said<'a> {
    /// Such as `OOM`: the server's, or the one that a script of ours has put first; `ERR` if there is none.
    pub code: &'a str,
    /// The text after the code, without the name of the script.
    pub text: &'a str,
}

impl<'a> Said<'a> {
    /// `None` for errors that do not come from a server.
    pub fn of(error: &'a RedisError) -> Option<Said<'a>> {
        Some(Said::read(error.code()?, error.detail().unwrap_or_default()))
    }

    fn read(code: &'a str, detail: &'a str) -> Said<'a> {
        let mut text = without_script(detail.trim_end());
        if code != "ERR" {
            return Said { code, text };
        }
        if let Some((_, said)) =
            text.strip_prefix("Error running script (call to f_").and_then(|said| said.split_once("): "))
        {
            text = said;
        }
        while let Some(behind) = behind_place(text) {
            text = behind;
        }
        text = text.strip_prefix('-').unwrap_or(text);
        match text.split_once(' ') {
            Some((code, text)) if is_code(code) => Said { code, text },
            _ => Said { code, text },
        }
    }
}

/// Without ` script: HASH, on @user_script:LINE.` at the end.
fn without_script(text: &str) -> &str {
    let is_place = |place: &str| {
        let parts = place.strip_suffix('.').and_then(|place| place.split_once(", on @user_script:"));
        parts.is_some_and(|(hash, line)| is_all(hash, |c| c.is_ascii_hexdigit()) && is_number(line))
    };
    match text.rsplit_once(" script: ") {
        Some((said, place)) if is_place(place) => said,
        _ => text,
    }
}

/// The text after `@user_script:LINE: `, `@user_script: LINE: ` or `user_script:LINE: `.
fn behind_place(text: &str) -> Option<&str> {
    let place = text.strip_prefix('@').unwrap_or(text).strip_prefix("user_script:")?;
    let (line, behind) = place.split_once(": ")?;
    is_number(line.trim_start()).then_some(behind)
}

fn is_code(word: &str) -> bool {
    word.len() > 1 && is_all(word, |c| c.is_ascii_uppercase())
}

fn is_number(text: &str) -> bool {
    is_all(text, |c| c.is_ascii_digit())
}

fn is_all(text: &str, is_one: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of Redis 6.2.14 and 7.0.15, without the hyphen.
    #[test]
    fn what_servers_have_answered_is_taken_apart() {
        let hash = "86fde4ef5751c44fce94a7d39215086ca601922b";
        let old = format!("ERR Error running script (call to f_{hash}): @user_script:1: ");
        let new = format!(" script: {hash}, on @user_script:1.");
        let full = "command not allowed when used memory > 'maxmemory'.";
        let typed = "Operation against a key holding the wrong kind of value";
        let replica = "You can't write against a read only replica.";
        let raised = "the key ROOM:{ab}:m is a string and not a hash";
        let short = "bad argument #2 to 'unpack' (data string too short)";
        let killed = "Script killed by user with SCRIPT KILL...";
        for (line, code, text) in [
            (format!("OOM {full}"), "OOM", full),
            (format!("OOM {full}{new}"), "OOM", full),
            (format!("{old}@user_script: 1: -OOM {full}\n"), "OOM", full),
            (format!("{old}@user_script: 1: -READONLY {replica}"), "READONLY", replica),
            (format!("READONLY {replica}{new}"), "READONLY", replica),
            (format!("{old}WRONGTYPE {typed}"), "WRONGTYPE", typed),
            (format!("WRONGTYPE {typed}{new}"), "WRONGTYPE", typed),
            (format!("{old}DWELLFOREIGN {raised}"), "DWELLFOREIGN", raised),
            (format!("ERR DWELLFOREIGN {raised}{new}"), "DWELLFOREIGN", raised),
            ("DWELLVERSION layout 9".to_owned(), "DWELLVERSION", "layout 9"),
            (format!("{old}user_script:2: Missing bytes in input."), "ERR", "Missing bytes in input."),
            (format!("ERR user_script:2: Missing bytes in input.{new}"), "ERR", "Missing bytes in input."),
            (format!("{old}user_script:1: {short}"), "ERR", short),
            (format!("{old}{killed}"), "ERR", killed),
            (format!("ERR {killed}{new}"), "ERR", killed),
            ("NOSCRIPT No matching script.".to_owned(), "NOSCRIPT", "No matching script."),
        ] {
            let (first, rest) = line.split_once(' ').unwrap();
            assert_eq!(Said::read(first, rest), Said { code, text }, "{line}");
        }
    }

    #[test]
    fn what_a_key_is_called_says_nothing() {
        let text = "the key a script: OOM READONLY is a list";
        assert_eq!(Said::read("ERR", &format!("DWELLFOREIGN {text}")), Said { code: "DWELLFOREIGN", text });
        for text in ["no such key OOM", "@user_script:x: OOM", "", "Error running script (call to f_"] {
            assert_eq!(Said::read("ERR", text), Said { code: "ERR", text });
        }
    }
}
