//! What every source file opens with, and what only some may name.

use std::path::Path;

use crate::workspace::{read, sources};

/// A rule: these words appear in none of these folders, but for the files that are the door to them.
struct Ban {
    words: &'static [&'static str],
    below: &'static [&'static str],
    except: &'static [&'static str],
    why: &'static str,
}

const BANS: &[Ban] = &[
    Ban {
        words: &["Instant::now(", "SystemTime::now(", "Utc::now(", "Timestamp::now(", "Zoned::now("],
        below: &["crates", "bench"],
        except: &["crates/time/src/clock/", "bench/src/stopwatch.rs"],
        why: "time enters through dwell_time::Clock",
    },
    Ban {
        words: &["std::fs", "std::net", "std::thread", "std::env", "std::process", "std::time::"],
        below: &["crates/model/src"],
        // Names the standard library's instants, and asks for none.
        except: &["crates/model/src/conversion.rs"],
        why: "the model does no input or output, and `now` is an argument",
    },
    Ban {
        words: &["std::fs", "std::net", "std::thread", "std::time::"],
        below: &["crates/time/src/timing_queue", "crates/store/src/core"],
        // A test of what could go on for ever runs in a thread, so that it fails instead.
        except: &["crates/store/src/core/tests/waiting.rs"],
        why: "these are pure: time and files stay outside",
    },
    Ban {
        words: &["std::fs", "rustix::fs", "OpenOptions", "fs::File"],
        below: &["crates/engine/src"],
        // Fixtures are read from where they are checked in, by a test.
        except: &[
            "crates/engine/src/disk.rs",
            "crates/engine/src/disk/",
            "crates/engine/src/sealed/fixtures.rs",
        ],
        why: "the engine touches files through its disk alone",
    },
];

#[test]
fn every_file_opens_by_saying_what_it_holds() {
    let silent: Vec<_> = sources().into_iter().filter(|path| !read(path).starts_with("//! ")).collect();
    assert!(silent.is_empty(), "these must open with `//!`: {silent:?}");
}

#[test]
fn doors_are_kept() {
    let mut wrong = Vec::new();
    for path in sources() {
        for ban in BANS.iter().filter(|ban| applies(ban, &path)) {
            for (number, line) in read(&path).lines().enumerate() {
                let code = line.split("//").next().unwrap_or_default();
                if let Some(word) = ban.words.iter().find(|word| code.contains(*word)) {
                    wrong.push(format!("{}:{}: {word}: {}", path.display(), number + 1, ban.why));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the path lies below one of the ban's folders, and is no exception. Exceptions are folders, with
/// a slash at their end, or files.
fn applies(ban: &Ban, path: &Path) -> bool {
    ban.below.iter().any(|folder| path.starts_with(folder))
        && !ban.except.iter().any(|exception| path.starts_with(exception.trim_end_matches('/')))
}

#[test]
fn clippy_bans_what_the_rules_ban() {
    let clippy = read(Path::new("clippy.toml"));
    for path in ["std::time::SystemTime::now", "std::time::Instant::now", "std::thread::sleep"] {
        assert!(clippy.contains(path), "clippy.toml must ban {path}");
    }
    assert!(read(Path::new("Cargo.toml")).contains("disallowed_methods = \"deny\""));
}
