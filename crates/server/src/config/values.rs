//! Parsers of values: each reads a text, and on failure says what would be valid.

use std::net::SocketAddr;
use std::path::PathBuf;

use axum::http::uri::Authority;
use dwell_model::{Limits, format_duration_ms, parse_duration_ms};
use dwell_redis::Address;
use dwell_redisson::Layout;

use super::keys::Given;
use super::layers::{Durability, StoreKind};
use super::log::{LogFormat, LogLevel};

pub(super) fn address(given: &Given<'_>) -> Result<SocketAddr, String> {
    let address = given.one().parse();
    address.map_err(|_| "this is an address with a port, such as 127.0.0.1:7411 or [::1]:7411".to_owned())
}

/// An address, or `off`.
pub(super) fn address_or_off(given: &Given<'_>) -> Result<Option<SocketAddr>, String> {
    if given.one() == "off" {
        return Ok(None);
    }
    address(given).map(Some).map_err(|_| {
        "this is an address with a port, such as 127.0.0.1:11300, or \"off\" to do without".to_owned()
    })
}

pub(super) fn boolean(given: &Given<'_>) -> Result<bool, String> {
    given.one().parse().map_err(|_| "this is true or false".to_owned())
}

/// A duration of at least a millisecond.
pub(super) fn duration_ms(given: &Given<'_>) -> Result<u64, String> {
    match wait_ms(given)? {
        0 => Err("this is at least 1ms".to_owned()),
        ms => Ok(ms),
    }
}

/// A duration, which may be zero.
pub(super) fn wait_ms(given: &Given<'_>) -> Result<u64, String> {
    match parse_duration_ms(given.one()) {
        Ok(ms) if ms > MAX_DURATION_MS => Err("this is at most 365d".to_owned()),
        Ok(ms) => Ok(ms),
        Err(invalid) => Err(invalid.to_string()),
    }
}

/// A year. Longer durations are taken for mistakes, and no timer can overflow.
const MAX_DURATION_MS: u64 = 365 * 86_400_000;

/// A duration, or `off`.
pub(super) fn duration_or_off(given: &Given<'_>) -> Result<Option<u64>, String> {
    if given.one() == "off" { Ok(None) } else { duration_ms(given).map(Some) }
}

/// Bytes: `1048576`, `64KiB`, `1MiB`, `1GiB`.
pub(super) fn bytes(given: &Given<'_>) -> Result<u64, String> {
    let text = given.one();
    let refuse = || "this is no size: write bytes, or a whole number with KiB, MiB or GiB".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(refuse()),
    };
    let number: u64 = digits.parse().map_err(|_| refuse())?;
    number.checked_mul(unit).ok_or_else(refuse)
}

/// Bytes, at least one.
pub(super) fn some_bytes(given: &Given<'_>) -> Result<u64, String> {
    match bytes(given)? {
        0 => Err("this is 1 byte at least".to_owned()),
        bytes => Ok(bytes),
    }
}

pub(super) fn log_level(given: &Given<'_>) -> Result<LogLevel, String> {
    let found = LogLevel::ALL.into_iter().find(|level| level.as_str() == given.one());
    found.ok_or_else(|| format!("this is {}", one_of(&LogLevel::ALL.map(LogLevel::as_str))))
}

pub(super) fn log_format(given: &Given<'_>) -> Result<LogFormat, String> {
    let found = LogFormat::ALL.into_iter().find(|format| format.as_str() == given.one());
    found.ok_or_else(|| format!("this is {}", one_of(&LogFormat::ALL.map(LogFormat::as_str))))
}

/// Words as alternatives: `"a" or "b"`.
fn one_of(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<String>>().join(" or ")
}

/// Bytes in the largest unit that divides them.
pub(super) fn show_bytes(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes > 0 && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

pub(super) fn body_len(given: &Given<'_>) -> Result<usize, String> {
    let most = Limits::MAX_BODY_LEN;
    match usize::try_from(bytes(given)?) {
        Ok(len @ 1..) if len <= most => Ok(len),
        _ => Err(format!("a body has at most {}, and may have 1 byte at least", show_bytes(most as u64))),
    }
}

pub(super) fn segment(given: &Given<'_>) -> Result<u64, String> {
    match bytes(given)? {
        len @ 0x1000..=0x4000_0000 => Ok(len),
        _ => Err("a segment has 4KiB to 1GiB".to_owned()),
    }
}

/// A size, or `off`.
pub(super) fn memory_limit(given: &Given<'_>) -> Result<Option<u64>, String> {
    if given.one() == "off" {
        return Ok(None);
    }
    match bytes(given)? {
        len @ 0x100_0000..=0x1_0000_0000_0000 => Ok(Some(len)),
        _ => Err("messages have 16MiB of memory at least; \"off\" keeps all of them in memory".to_owned()),
    }
}

/// A whole number of at least 1.
pub(super) fn count(given: &Given<'_>) -> Result<usize, String> {
    // More than anything in memory can number, and far from any overflow.
    match given.one().parse() {
        Ok(count @ 1..=0xFFFF_FFFF) => Ok(count),
        _ => Err("this is a whole number from 1 to 4294967295".to_owned()),
    }
}

/// A whole number, 0 for no limit.
pub(super) fn count_or_none(given: &Given<'_>) -> Result<u32, String> {
    given.one().parse().map_err(|_| "this is a whole number from 0 to 4294967295".to_owned())
}

/// A path; in a file it is relative to the file's folder.
pub(super) fn path(given: &Given<'_>) -> Result<PathBuf, String> {
    if given.one().is_empty() || given.one().contains('\0') {
        return Err("this is a path".to_owned());
    }
    Ok(given.folder.join(given.one()))
}

/// Host names of a listener.
pub(super) fn hosts(given: &Given<'_>) -> Result<Vec<String>, String> {
    for name in given.texts {
        let authority = name.parse::<Authority>().ok().filter(|_| !name.contains('@'));
        if authority.is_none_or(|authority| authority.host().is_empty()) {
            return Err(
                "these are names such as dwell.example, or with a port, dwell.example:8080".to_owned()
            );
        }
    }
    Ok(given.texts.to_vec())
}

pub(super) fn store(given: &Given<'_>) -> Result<StoreKind, String> {
    match given.one() {
        "engine" => Ok(StoreKind::Engine),
        "memory" => Ok(StoreKind::Memory),
        url if ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) => {
            Ok(StoreKind::Postgres(Box::new(postgres(url)?)))
        }
        url if url.contains("://") => Ok(StoreKind::Redis(Box::new(redis(given)?))),
        // The value is not repeated: a store's address may hold a password.
        _ => Err("this is \"engine\" (in files, see store.data), \"memory\" (nothing is kept), or the URL of a Redis or a PostgreSQL \
                  such as redis://127.0.0.1:6379 or postgres://127.0.0.1:5432/dwell"
            .to_owned()),
    }
}

/// The URL of a Redis.
pub(super) fn redis(given: &Given<'_>) -> Result<Address, String> {
    given.one().parse().map_err(|refusal: dwell_redis::OpenError| refusal.to_string())
}

/// The URL of a PostgreSQL.
fn postgres(url: &str) -> Result<dwell_postgres::Address, String> {
    url.parse().map_err(|refusal: dwell_postgres::OpenError| refusal.to_string())
}

/// Which of Redisson's two layouts the Java clients read.
pub(super) fn layout(given: &Given<'_>) -> Result<Option<Layout>, String> {
    match given.one() {
        "any" => Ok(None),
        "new" => Ok(Some(Layout::New)),
        "old" => Ok(Some(Layout::Old)),
        _ => Err("this is \"any\", \"new\" (Redisson 3.21.1 and later) or \"old\"".to_owned()),
    }
}

pub(super) fn show_layout(layout: Option<Layout>) -> &'static str {
    match layout {
        None => "any",
        Some(Layout::New) => "new",
        Some(Layout::Old) => "old",
    }
}

pub(super) fn durability(given: &Given<'_>) -> Result<Durability, String> {
    match (given.one(), given.one().strip_prefix("interval:")) {
        ("always", _) => Ok(Durability::Always),
        ("os", _) => Ok(Durability::Os),
        (_, Some(interval)) => match parse_duration_ms(interval).map_err(|invalid| invalid.to_string())? {
            0 => Err("an interval has at least 1 ms; 'always' syncs before it answers".to_owned()),
            ms => Ok(Durability::IntervalMs(ms)),
        },
        _ => Err("this is 'always', 'os', or 'interval:' and a duration such as 100ms".to_owned()),
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Durability::Always => f.write_str("always"),
            Durability::Os => f.write_str("os"),
            Durability::IntervalMs(ms) => write!(f, "interval:{}", format_duration_ms(*ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn given<T>(text: &str, read: impl Fn(&Given<'_>) -> Result<T, String>) -> Result<T, String> {
        read(&Given { texts: &[text.to_owned()], folder: Path::new("/etc/dwell") })
    }

    #[test]
    fn sizes_have_binary_units_or_none() {
        for (text, size) in
            [("0", 0), ("1048576", 1 << 20), ("64KiB", 1 << 16), ("1MiB", 1 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(given(text, bytes), Ok(size));
            assert_eq!(given(&show_bytes(size), bytes), Ok(size), "it is shown as it is read");
        }
        for bad in ["", "MiB", "1MB", "1.5MiB", "-1", "1 MiB", "99999999999999999999", "18014398509481985KiB"]
        {
            assert!(given(bad, bytes).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_has_a_limit_or_none() {
        assert_eq!(given("off", memory_limit), Ok(None));
        assert_eq!(given("16MiB", memory_limit), Ok(Some(16 << 20)));
        for bad in ["", "on", "0", "15MiB", "256MB", "-1", "99999999GiB"] {
            assert!(given(bad, memory_limit).is_err(), "{bad}");
        }
    }

    #[test]
    fn durability_is_read_as_it_is_shown() {
        for text in ["always", "os", "interval:100ms", "interval:1m"] {
            assert_eq!(given(text, durability).unwrap().to_string(), text);
        }
        for bad in ["", "never", "interval:", "interval:5", "interval:0s", "interval:-1s"] {
            assert!(given(bad, durability).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_have_ports_and_may_be_off_where_that_makes_sense() {
        assert_eq!(given("off", address_or_off), Ok(None));
        assert!(given("[::1]:0", address_or_off).unwrap().is_some());
        for bad in ["", "on", "11300", ":11300", "localhost", "127.0.0.1", "localhost:7411"] {
            assert!(given(bad, address_or_off).is_err() && given(bad, address).is_err(), "{bad}");
        }
        assert!(given("off", address).is_err());
    }

    #[test]
    fn paths_count_from_the_folder_of_the_file_that_names_them() {
        assert_eq!(given("tls/cert.pem", path), Ok(PathBuf::from("/etc/dwell/tls/cert.pem")));
        assert_eq!(given("/srv/cert.pem", path), Ok(PathBuf::from("/srv/cert.pem")));
        assert!(given("", path).is_err());
    }

    #[test]
    fn what_could_be_a_secret_is_not_repeated() {
        for url in [
            "user:hush@host",
            "redis://user:hush@host/x",
            "redis://user:hush",
            "x://hush",
            "postgres://user:hush@host:x/",
            "postgres://user:hush@host/?connections=0",
        ] {
            let said = given(url, store).unwrap_err();
            assert!(!said.contains("hush"), "{said}");
        }
        let kept = given("rediss://user:hush@host/2?prefix=shop", store).unwrap();
        assert_eq!((kept.as_str(), kept.shown().as_str()), ("redis", "rediss://…@host:6379/2?prefix=shop"));
        assert!(!format!("{kept:?}").contains("hush"), "{kept:?}");
        let kept = given("postgresql://user:hush@host/shop?schema=timers", store).unwrap();
        assert_eq!(
            (kept.as_str(), kept.shown().as_str()),
            ("postgres", "postgres://host:5432/shop?schema=timers")
        );
        assert!(!format!("{kept:?}").contains("hush"), "{kept:?}");
    }
}
