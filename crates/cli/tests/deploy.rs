//! The files in `deploy/` match the binary: paths, options, versions. No container engine is needed.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{dwell, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Asserts that the command line is valid; `--help` keeps it from being executed.
fn assert_understood(args: &[&str]) {
    let mut command = dwell();
    command.args(args).arg("--help");
    let ran = run(command);
    assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
}

#[test]
fn the_unit_runs_commands_that_there_are() {
    let unit = read("deploy/dwell.service");
    let lines = unit.lines().filter_map(|line| line.strip_prefix("ExecStart")?.split_once('='));
    let commands: Vec<&str> = lines.map(|(_, command)| command).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let args = command.strip_prefix("/usr/local/bin/dwell ").unwrap();
        assert_understood(&args.split(' ').collect::<Vec<&str>>());
        assert!(args.ends_with("--config /etc/dwell/dwell.toml"), "{args}");
    }
    for line in [
        "Type=notify",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "StateDirectory=dwell",
        "User=dwell",
        "Group=dwell",
    ] {
        assert!(unit.contains(&format!("\n{line}\n")), "{line}");
    }
    // The example keeps its data where the unit allows it, and drains before the unit's timeout.
    let example = read("deploy/dwell.toml");
    assert!(example.contains("data = \"/var/lib/dwell\"") && example.contains("drain = \"30s\""));
    assert!(unit.contains("TimeoutStopSec=60s"));
}

#[test]
fn the_image_holds_what_it_runs() {
    let file = read("deploy/Dockerfile");
    let instructions: Vec<(&str, &str)> = file
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with(' '))
        .filter_map(|line| line.split_once(' '))
        .collect();
    let of = |name: &str| -> Vec<&str> {
        instructions.iter().filter(|(instruction, _)| *instruction == name).map(|(_, rest)| *rest).collect()
    };
    let known =
        ["FROM", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"];
    assert!(instructions.iter().all(|(instruction, _)| known.contains(instruction)), "{instructions:?}");
    // Base images have versions, and the compiler's is the workspace's.
    let version =
        read("Cargo.toml").lines().find_map(|line| line.strip_prefix("rust-version = ").map(str::to_owned));
    let version = version.unwrap().trim_matches('"').to_owned();
    assert!(of("FROM")[0].starts_with(&format!("rust:{version}-")), "{:?}", of("FROM"));
    assert!(of("FROM").iter().all(|base| base.contains(':') && !base.contains("latest")));
    // The built file is the one that is copied, to where the entry point expects it.
    assert!(file.contains(&format!("-p {}", env!("CARGO_PKG_NAME"))));
    let binary = Path::new(env!("CARGO_BIN_EXE_dwell")).file_name().unwrap().to_str().unwrap();
    assert!(file.contains(&format!("/src/target/release/{binary} /usr/local/bin/{binary}")));
    let list = |name: &str| serde_json::from_str::<Vec<String>>(of(name)[0]).unwrap();
    assert_eq!(list("ENTRYPOINT"), [binary]);
    let cmd = list("CMD");
    assert_understood(&cmd.iter().map(String::as_str).collect::<Vec<&str>>());
    // It does not run as root, and names its user by number, so that this can be checked.
    let user: Vec<u32> = of("USER")[0].split(':').map(|id| id.parse().unwrap()).collect();
    assert!(user.len() == 2 && user.iter().all(|id| *id > 0));
}
