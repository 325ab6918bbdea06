//! `dwell engine`: a data directory is backed up under a server, checked, measured, dumped, damaged and repaired.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use common::{Ran, dwell, run, serve, serve_in_memory};

/// `dwell engine ARGS`.
fn engine(args: &[&str]) -> Ran {
    let mut command = dwell();
    // No server listens there: only the directory counts.
    command.env("DWELL_SERVER", "http://127.0.0.1:9").arg("engine").args(args);
    run(command)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    files.collect()
}

/// A file of 40 messages, some with a key.
fn lines() -> Vec<u8> {
    let line = |i: u32| {
        let key = if i.is_multiple_of(4) { format!(",\"key\":\"k{i}\"") } else { String::new() };
        format!("{{\"queue\":\"orders\",\"body\":\"message {i:02}\",\"delay\":\"1h\"{key}}}\n")
    };
    (0..40).map(line).collect::<String>().into_bytes()
}

#[test]
fn a_directory_is_backed_up_under_its_server_and_served_again() {
    let home = tempfile::tempdir().unwrap();
    let (data, backup) = (home.path().join("data"), home.path().join("backup"));
    let server = serve(&data);
    server.dwell_with(&["put", "--from", "-"], &lines()).ok();
    let mode = fs::metadata(data.join("CONTROL")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let made = engine(&["backup", text(&data), text(&backup)]).ok().json();
    assert_eq!((made["online"].as_bool(), made["check"]["sound"].as_bool()), (Some(true), Some(true)));
    assert_eq!(made["check"]["messages"], 40);
    // The server goes on, and later changes are not in the backup.
    server.dwell(&["purge", "orders", "--yes"]).ok();
    assert_eq!(engine(&["backup", text(&data), text(&backup)]).failure(), "not_empty");
    assert_eq!(engine(&["backup", text(&data), text(&data.join("within"))]).failure(), "usage");
    for command in ["check", "stats", "dump"] {
        let refused = engine(&[command, text(&data)]);
        assert_eq!((refused.code, refused.failure().as_str()), (1, "locked"), "{command}");
    }
    server.stop_by("TERM");
    assert!(!data.join("CONTROL").exists());

    let again = serve(&backup);
    assert!(again.serving["recovered"]["restored"].is_string(), "{}", again.serving);
    assert_eq!(again.serving["recovered"]["messages"], 40);
    again.dwell(&["put", "orders", "one more"]).ok();
    // A kill leaves the socket; the next server replaces it, and a backup works without a server.
    again.kill();
    let offline = home.path().join("offline");
    let made = engine(&["backup", text(&backup), text(&offline), "--copy", "--no-check"]).ok().json();
    assert_eq!((made["online"].as_bool(), made["linked"].as_u64()), (Some(false), Some(0)));
    assert_eq!(engine(&["check", text(&offline)]).ok().json()["messages"], 41);
    let third = serve(&backup);
    assert!(third.serving["recovered"]["restored"].is_null());
}

#[test]
fn a_sound_directory_is_checked_measured_and_dumped_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = serve(&data);
    server.dwell_with(&["put", "--from", "-"], &lines()).ok();
    let raw = home.path().join("raw");
    fs::write(&raw, [0xff, 0xfe, 0]).unwrap();
    server.dwell_with(&["put", "blobs", "-"], &fs::read(&raw).unwrap()).ok();
    server.dwell(&["take", "blobs", "--lease", "1h"]).ok();
    server.stop_by("TERM");
    let before = files(&data);

    let checked = engine(&["check", text(&data)]).ok().json();
    assert_eq!((checked["sound"].as_bool(), checked["messages"].as_u64()), (Some(true), Some(41)));
    assert!(engine(&["check", text(&data), "--human"]).ok().stdout.contains("sound"));
    let stats = engine(&["stats", text(&data)]).ok().json();
    let orders = stats["queues"].as_array().unwrap().iter().find(|queue| queue["queue"] == "orders").unwrap();
    assert_eq!((orders["scheduled"].as_u64(), stats["was_closed"].as_bool()), (Some(40), Some(true)));
    assert!(engine(&["stats", text(&data), "--files", "--human"]).ok().stdout.contains("journal"));

    let all = engine(&["dump", text(&data)]).ok().lines();
    assert_eq!(all.len(), 41);
    let leased = engine(&["dump", text(&data), "--state", "leased"]).ok().json();
    assert_eq!((leased["body_base64"].as_str(), leased["queue"].as_str()), (Some("//4A"), Some("blobs")));
    assert_eq!(engine(&["dump", text(&data), "--queue", "nothing"]).code, 3);
    assert_eq!(files(&data), before, "nothing was changed");

    // A put accepts the output of a dump.
    let puts = engine(&["dump", text(&data), "--puts"]).ok().stdout;
    let server = serve_in_memory(&[]);
    let put = server.dwell_with(&["put", "--from", "-"], puts.as_bytes()).ok().json();
    assert_eq!((put["put"].as_u64(), put["refused"].as_u64()), (Some(41), Some(0)));
    let listed = server.dwell(&["list", "orders", "--all"]).ok().lines();
    let bodies = |messages: &[serde_json::Value]| {
        let mut bodies: Vec<String> = messages
            .iter()
            .filter(|message| message["queue"] == "orders")
            .map(|message| format!("{} {} {}", message["body"], message["key"], message["due"]))
            .collect();
        bodies.sort();
        bodies
    };
    assert_eq!(bodies(&listed), bodies(&all));
}

#[test]
fn a_damaged_directory_is_told_of_and_repaired_into_another() {
    let home = tempfile::tempdir().unwrap();
    let (data, mended) = (home.path().join("data"), home.path().join("mended"));
    let server = serve(&data);
    for line in String::from_utf8(lines()).unwrap().lines() {
        server.dwell_with(&["put", "--from", "-"], line.as_bytes()).ok();
        if line.contains("message 05") {
            break;
        }
    }
    server.stop_by("TERM");
    let journal = data.join("journal-000-000000000001");
    let mut bytes = fs::read(&journal).unwrap();
    let at = bytes.windows(10).position(|window| window == b"message 02").unwrap();
    bytes[at] = b'M';
    fs::write(&journal, &bytes).unwrap();
    let before = files(&data);

    let checked = engine(&["check", text(&data)]);
    assert_eq!(checked.code, 1);
    let checked = checked.json();
    assert_eq!(checked["flaws"][0]["file"], text(&journal));
    assert!(checked["flaws"][0]["offset"].as_u64().unwrap() < at as u64);
    assert!(engine(&["check", text(&data), "--human"]).stdout.contains("damaged"));
    assert_eq!(engine(&["stats", text(&data)]).failure(), "damaged");

    let within = engine(&["repair", text(&data), text(&data.join("new"))]);
    assert_eq!((within.code, within.failure().as_str()), (2, "usage"));
    let ran = engine(&["repair", text(&data), text(&mended)]);
    assert_eq!(ran.code, 1, "something was lost: {ran:?}");
    let report = ran.json();
    assert_eq!((report["messages"].as_u64(), report["sound"].as_bool()), (Some(5), Some(true)));
    assert_eq!(
        (report["lost"][0]["messages"].as_u64(), report["lost"][0]["from"].as_u64()),
        (Some(1), Some(at as u64))
    );
    assert_eq!(files(&data), before, "the damaged directory was changed");
    assert_eq!(engine(&["repair", text(&data), text(&mended)]).failure(), "not_empty");

    let server = serve(&mended);
    let bodies: Vec<String> = server
        .dwell(&["list", "orders", "--all"])
        .ok()
        .lines()
        .iter()
        .map(|m| m["body"].to_string())
        .collect();
    assert_eq!(bodies.len(), 5);
    assert!(!bodies.iter().any(|body| body.contains("essage 02")));
}
