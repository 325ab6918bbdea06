//! The contract's bullets, the scenarios and the list of tests have the same names.

use std::collections::{BTreeMap, BTreeSet};

const CONTRACT: &str = include_str!("../contract/mod.rs");

const LIST: &[(&str, &str)] = crate::conformance_suite!(@list names ());

/// The name of the test for a bullet.
fn snake_case(bullet: &str) -> String {
    let mut name = String::new();
    for c in bullet.chars() {
        match c {
            '\'' => {}
            c if c.is_ascii_alphanumeric() => name.push(c.to_ascii_lowercase()),
            _ if name.ends_with('_') || name.is_empty() => {}
            _ => name.push('_'),
        }
    }
    name.trim_end_matches('_').to_owned()
}

#[test]
fn every_bullet_has_its_test_and_every_test_its_bullet() {
    let bullets: Vec<String> = CONTRACT
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("/// - "))
        .map(snake_case)
        .collect();
    assert!(bullets.len() > 100, "the contract is read wrongly: {} bullets", bullets.len());
    let mut times: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for bullet in &bullets {
        times.entry(bullet).or_default().0 += 1;
    }
    for (_, name) in LIST {
        times.entry(name).or_default().1 += 1;
    }
    let odd: Vec<_> = times.into_iter().filter(|&(_, times)| times != (1, 1)).collect();
    assert!(odd.is_empty(), "(name, (bullets, tests)) that are not there once each: {odd:#?}");
}

/// The compiler checks that each listed scenario exists, but not that each scenario is listed.
#[test]
fn every_scenario_is_listed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance/scenario");
    let mut written = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let source = std::fs::read_to_string(&path).unwrap();
        for line in source.lines() {
            if let Some((name, _)) = line.strip_prefix("pub fn ").and_then(|rest| rest.split_once('(')) {
                written.insert((module.clone(), name.to_owned()));
            }
        }
    }
    let listed: BTreeSet<_> = LIST.iter().map(|(file, name)| (file.to_string(), name.to_string())).collect();
    assert_eq!(written, listed);
}
