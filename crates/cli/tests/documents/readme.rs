//! The README.

use std::path::Path;

use crate::common::{Server, dwell};
use crate::{in_own_network, shell_blocks};

const README: &str = include_str!("../../../../README.md");

#[test]
fn shell_blocks_run_as_written() {
    in_own_network("readme::in_this_network", run_the_blocks);
}

#[test]
#[ignore = "run by shell_blocks_run_as_written, in a network of its own"]
fn in_this_network() {
    run_the_blocks();
}

fn run_the_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = None;
    let mut ran = Vec::new();
    for block in shell_blocks(README) {
        match block {
            // The binary that was built for the tests is used in place of the one that this would build.
            "cargo run --release -- serve\n" => {
                let mut command = dwell();
                command.arg("serve").current_dir(folder.path());
                let serving = server.insert(Server::spawn(command));
                assert_eq!(serving.url(), "http://127.0.0.1:7411");
                assert!(folder.path().join("dwell-data").is_dir());
            }
            // This test is run by it.
            "./scripts/test\n" => {
                assert!(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test")).is_file());
            }
            block => {
                assert!(server.is_some(), "a block needs the server that an earlier one starts:\n{block}");
                ran.push(shell(block, folder.path()));
            }
        }
    }
    let [curl, command_line] = ran.as_slice() else { panic!("two blocks talk to the server, not {ran:?}") };
    assert!(curl.contains("\"body\":\"close order 7\""), "{curl}");
    assert!(curl.trim_end().ends_with("{\"state\":\"gone\"}"), "{curl}");
    assert!(command_line.contains("\"body\":\"close order 8\""), "{command_line}");
    assert!(command_line.contains("{\"put\":1,\"refused\":0,\"skipped\":0}"), "{command_line}");
}

/// Runs a block in which no request may be refused.
fn shell(block: &str, folder: &Path) -> String {
    let ran = crate::shell(block, folder);
    assert!(!ran.stdout.contains("\"retryable\""), "something was refused:\n{}", ran.stdout);
    ran.stdout
}
