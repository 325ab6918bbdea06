//! Which crate may depend on which, and what every crate's manifest says.

use std::collections::BTreeSet;

use crate::workspace::{Package, built_with, metadata, packages, read, root};

/// Who may need whom, directly, to be built. `*` is anybody. Dependencies point one way:
///
/// ```text
/// model <- time <- engine            model <- store <- engine | redis | postgres
/// redis <- redisson <- server | cli     postgres <- server | cli
/// store <- delivery <- server <- cli     store <- client <- dwell | cli | sim
/// store <- wire <- client | server
/// sim, bench -> anything; nothing -> server but cli and sim
/// model <- time <- testkit <- sim, bench, and the tests of anybody
/// ```
const MAY_NEED: &[(&str, &[&str])] = &[
    ("dwell-model", &[]),
    ("dwell-time", &["dwell-model"]),
    ("dwell-store", &["dwell-model", "dwell-time"]),
    ("dwell-engine", &["dwell-model", "dwell-time", "dwell-store"]),
    ("dwell-redis", &["dwell-model", "dwell-time", "dwell-store"]),
    ("dwell-redisson", &["dwell-model", "dwell-time", "dwell-redis"]),
    ("dwell-postgres", &["dwell-model", "dwell-time", "dwell-store"]),
    ("dwell-wire", &["dwell-model", "dwell-store"]),
    ("dwell-client", &["dwell-model", "dwell-time", "dwell-store", "dwell-wire"]),
    ("dwell-delivery", &["dwell-model", "dwell-time", "dwell-store"]),
    (
        "dwell",
        &[
            "dwell-model",
            "dwell-time",
            "dwell-store",
            "dwell-client",
            "dwell-engine",
            "dwell-redis",
            "dwell-postgres",
            "dwell-delivery",
        ],
    ),
    (
        "dwell-server",
        &[
            "dwell-model",
            "dwell-time",
            "dwell-store",
            "dwell-engine",
            "dwell-redis",
            "dwell-redisson",
            "dwell-wire",
            "dwell-postgres",
            "dwell-delivery",
        ],
    ),
    (
        "dwell-cli",
        &[
            "dwell-model",
            "dwell-time",
            "dwell-store",
            "dwell-engine",
            "dwell-redis",
            "dwell-redisson",
            "dwell-wire",
            "dwell-client",
            "dwell-postgres",
            "dwell-delivery",
            "dwell-server",
        ],
    ),
    ("dwell-testkit", &["dwell-model", "dwell-time"]),
    ("dwell-sim", &["*"]),
    ("dwell-bench", &["*"]),
    ("dwell-tests", &[]),
];

/// Nobody else may need these: not to be built, and not for tests.
const NEEDED_BY: &[(&str, &[&str])] = &[("dwell-server", &["dwell-cli", "dwell-sim"]), ("dwell-bench", &[])];

/// Crates whose code must stay free of input and output: what they may not need from outside.
const PURE: &[&str] = &["dwell-model"];
const IO_CRATES: &[&str] =
    &["tokio", "rustix", "libc", "mio", "socket2", "hyper", "reqwest", "rand", "getrandom"];

#[test]
fn dependencies_point_one_way() {
    let mut wrong = Vec::new();
    for package in packages() {
        let Some((_, allowed)) = MAY_NEED.iter().find(|(name, _)| *name == package.name) else {
            wrong.push(format!("{}: say in MAY_NEED what it may need", package.name));
            continue;
        };
        for needed in &package.needs {
            if !allowed.contains(&"*") && !allowed.contains(&needed.as_str()) {
                wrong.push(format!("{} must not need {needed}", package.name));
            }
        }
        // A crate may test with itself.
        for needed in package.needs.union(&package.tests_need).filter(|needed| **needed != package.name) {
            if NEEDED_BY.iter().any(|(name, by)| name == needed && !by.contains(&package.name.as_str())) {
                wrong.push(format!("{} must not need {needed}, nor may its tests", package.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_of_dependencies_has_no_cycle() {
    let needs = |name: &str| {
        let (_, needs) = MAY_NEED.iter().find(|(entry, _)| *entry == name).expect("it is in the table");
        needs.iter().filter(|needed| **needed != "*").copied().collect::<Vec<&str>>()
    };
    for (start, _) in MAY_NEED {
        let mut reached = BTreeSet::new();
        let mut open = needs(start);
        while let Some(name) = open.pop() {
            assert_ne!(name, *start, "{start} would need itself");
            if reached.insert(name) {
                open.extend(needs(name));
            }
        }
    }
}

#[test]
fn pure_crates_need_nothing_that_does_io() {
    for package in packages().iter().filter(|package| PURE.contains(&package.name.as_str())) {
        let dependencies = package.manifest["dependencies"].as_array().expect("a package lists dependencies");
        for dependency in dependencies {
            let name = dependency["name"].as_str().expect("it has a name");
            assert!(!IO_CRATES.contains(&name), "{} must stay pure, and needs {name}", package.name);
        }
    }
}

/// A program that takes the clocks and the delay queue alone builds nothing that only messages need.
#[test]
fn time_alone_needs_nothing_of_messages() {
    let crates = built_with("dwell-time");
    assert!(crates.contains("dwell-model"), "{crates:?}");
    for of_messages in ["base64", "bytes", "crc32fast", "jiff", "uuid"] {
        assert!(!crates.contains(of_messages), "dwell-time needs {of_messages}");
    }
    // The feature is still what brings them.
    let crates = built_with("dwell-store");
    assert!(crates.contains("uuid") && crates.contains("jiff"), "{crates:?}");
}

#[test]
fn folders_name_packages() {
    for package in packages() {
        let folder = package.manifest_path.parent().expect("a manifest lies in a folder");
        let folder = folder.strip_prefix(root()).expect("it lies below the root");
        let expected = match folder.to_str().expect("folders have names in UTF-8") {
            "crates/dwell" => "dwell".to_owned(),
            other => format!("dwell-{}", other.trim_start_matches("crates/")),
        };
        assert_eq!(package.name, expected, "in {}", folder.display());
    }
}

#[test]
fn every_crate_inherits_the_lints() {
    for package in packages() {
        let manifest = read(&package.manifest_path);
        assert!(
            manifest.contains("[lints]\nworkspace = true\n"),
            "{}: add `[lints]` with `workspace = true`",
            package.manifest_path.display()
        );
    }
}

#[test]
fn every_published_crate_is_fit_for_crates_io() {
    let mut wrong = Vec::new();
    let mut repositories = BTreeSet::new();
    for package in packages().iter().filter(|package| package.is_published()) {
        repositories.insert(package.text("repository").map(str::to_owned));
        wrong.extend(unfit(package).into_iter().map(|reason| format!("{}: {reason}", package.name)));
    }
    // There is no public repository yet. Once there is one, no crate may lack it or name another.
    if repositories.len() > 1 {
        wrong.push(format!("the crates differ in `repository`: {repositories:?}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What crates.io, or somebody who reads a page there, would miss. The limits are those of
/// <https://doc.rust-lang.org/cargo/reference/manifest.html>.
fn unfit(package: &Package) -> Vec<String> {
    let mut wrong = Vec::new();
    for field in ["description", "license", "rust_version"] {
        if package.text(field).is_none_or(str::is_empty) {
            wrong.push(format!("has no {field}"));
        }
    }
    if package.text("license") != Some("MIT OR Apache-2.0") {
        wrong.push("is not under MIT OR Apache-2.0".to_owned());
    }
    if package.text("description").is_some_and(|text| text.ends_with('.') || text.len() > 150) {
        wrong.push("its description is one phrase of at most 150 characters without a full stop".to_owned());
    }
    for (field, longest) in [("keywords", 20), ("categories", 60)] {
        let words = package.manifest[field].as_array().map(Vec::as_slice).unwrap_or_default();
        if words.is_empty() || words.len() > 5 {
            wrong.push(format!("has {} {field}; 1 to 5 are accepted", words.len()));
        }
        if words.iter().any(|word| word.as_str().is_none_or(|word| word.len() > longest)) {
            wrong.push(format!("one of its {field} is longer than {longest}"));
        }
    }
    for dependency in package.manifest["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default() {
        // A dev-dependency by path alone is left out of what is published, so a crate may test with itself.
        if dependency["req"] == "*" && dependency["kind"] != "dev" {
            wrong.push(format!("names no version of {}", dependency["name"]));
        }
    }
    wrong
}

#[test]
fn cargo_run_means_the_dwell_binary() {
    let defaults = metadata()["workspace_default_members"].to_string();
    let mut binaries = Vec::new();
    for package in packages() {
        if defaults.contains(package.manifest["id"].as_str().expect("a package has an id")) {
            binaries.extend(package.targets("bin").into_iter().map(str::to_owned));
        }
    }
    let dwell_only = binaries.iter().all(|binary| binary == "dwell") && binaries.len() < 2;
    assert!(
        dwell_only,
        "`cargo run` must find one binary, not {binaries:?}: see `default-members` in Cargo.toml"
    );
}
