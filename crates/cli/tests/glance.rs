//! `forecast` and `top`: what falls due, and all queues at a glance.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use common::serve_in_memory;
use serde_json::json;

#[test]
fn what_falls_due_is_shown_by_step() {
    let server = serve_in_memory(&[]);
    let put = server.dwell(&["put", "a", "x", "--delay", "10m"]).ok().json();
    server.dwell(&["put", "a", "x", "--due", put["due"].as_str().unwrap()]).ok();
    for (queue, delay) in [("a", "25h"), ("b", "30m")] {
        server.dwell(&["put", queue, "x", "--delay", delay]).ok();
    }
    let hour = server.dwell(&["forecast", "a"]).ok().json();
    assert_eq!((&hour["queue"], &hour["scheduled"], &hour["within"]), (&json!("a"), &json!(3), &json!(0)));
    let due_by = hour["due_by"].as_array().unwrap();
    assert_eq!((due_by.len(), &due_by[5], &due_by[59]), (60, &json!(0), &json!(2)));
    let all = server.dwell(&["forecast", "--span", "day"]).ok().json();
    assert_eq!((&all["queue"], &all["scheduled"], &all["due_by"][23]), (&json!(null), &json!(4), &json!(3)));

    let shown = server.dwell(&["forecast", "a", "--human"]).ok().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "a  3 scheduled, a bar is 1m");
    let full: Vec<_> = lines[1..61].iter().filter(|line| line.contains('█')).collect();
    assert_eq!(full.len(), 1, "{shown}");
    assert!(full[0].contains(" 2 ") && full[0].ends_with(&"█".repeat(50)), "{shown}");
    assert_eq!(lines[61..], ["1 later"], "{shown}");
}

#[test]
fn all_queues_are_shown_at_a_glance() {
    let server = serve_in_memory(&[]);
    for (queue, delay) in [("few", "0s"), ("many", "0s"), ("many", "0s"), ("later", "30m")] {
        server.dwell(&["put", queue, "x", "--delay", delay]).ok();
    }
    let overview = server.dwell(&["top", "--once"]).ok().json();
    let census = &overview["census"];
    assert_eq!((&census["queues"], &census["counts"]["ready"]), (&json!(3), &json!(3)));
    assert_eq!(census["forecast"]["due_by"], json!([0, 1, 1, 1]));

    let shown = server.dwell(&["top", "--once", "--human", "--rows", "2"]).ok().stdout;
    assert!(shown.contains("queues 3   scheduled 1   ready 3   leased 0   dead 0"), "{shown}");
    assert!(shown.contains("falls due within   1 min 0   1 h 1   24 h 1   30 d 1"), "{shown}");
    let names: Vec<&str> = shown.lines().rev().take(2).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["few", "many"], "the fullest queue comes first: {shown}");
    let by_scheduled = server.dwell(&["top", "--once", "--human", "--by", "scheduled", "--rows", "1"]).ok();
    assert!(by_scheduled.stdout.lines().last().unwrap().starts_with("later "), "{by_scheduled:?}");
}

#[test]
fn what_is_asked_of_them_is_within_bounds() {
    let server = serve_in_memory(&[]);
    for args in [
        ["forecast", "--span", "year"],
        ["top", "--rows", "0"],
        ["top", "--rows", "101"],
        ["top", "--by", "age"],
        ["forecast", "q", "--once"],
    ] {
        let refused = server.dwell(&args);
        assert_eq!(refused.code, 2, "{args:?}: {refused:?}");
    }
}
