//! The workspace as data: its packages as `cargo metadata` tells them, and its source files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// One package of this workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest: Value,
    pub(crate) manifest_path: PathBuf,
    /// Packages of this workspace that it needs to be built.
    pub(crate) needs: BTreeSet<String>,
    /// Packages of this workspace that its tests, examples and benches need besides.
    pub(crate) tests_need: BTreeSet<String>,
}

impl Package {
    pub(crate) fn is_published(&self) -> bool {
        self.manifest["publish"].as_array().is_none_or(|registries| !registries.is_empty())
    }

    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.manifest[field].as_str()
    }

    /// Names of its targets of one kind: `bin`, `lib`, `test`, `example`.
    pub(crate) fn targets(&self, kind: &str) -> Vec<&str> {
        let targets = self.manifest["targets"].as_array().expect("a package lists its targets");
        targets
            .iter()
            .filter(|target| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == kind)))
            .filter_map(|target| target["name"].as_str())
            .collect()
    }
}

/// The workspace's root folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the root folder")
}

/// What `cargo metadata` says of the workspace. Reads no registry: dependencies are taken from the manifests.
pub(crate) fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs, since it has built this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Names of all crates that a package is built with where nothing else is, and none of its features is asked for.
pub(crate) fn built_with(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--edges=normal",
            "--no-default-features",
            "--prefix=none",
            "--package",
            package,
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs, since it has built this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("cargo tree prints UTF-8");
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// All packages of the workspace.
pub(crate) fn packages() -> Vec<Package> {
    let metadata = metadata();
    let manifests = metadata["packages"].as_array().expect("metadata lists packages");
    let name = |value: &Value| value["name"].as_str().expect("it has a name").to_owned();
    let ours: BTreeSet<String> = manifests.iter().map(name).collect();
    manifests
        .iter()
        .map(|manifest| {
            let dependencies = manifest["dependencies"].as_array().expect("a package lists dependencies");
            let (tests, builds): (Vec<&Value>, Vec<&Value>) = dependencies
                .iter()
                .filter(|dependency| ours.contains(&name(dependency)))
                .partition(|dependency| dependency["kind"] == "dev");
            Package {
                name: name(manifest),
                manifest: manifest.clone(),
                manifest_path: manifest["manifest_path"].as_str().expect("it has a manifest").into(),
                needs: builds.into_iter().map(name).collect(),
                tests_need: tests.into_iter().map(name).collect(),
            }
        })
        .collect()
}

/// All `.rs` files of the workspace, relative to its root, in order of their names.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["crates", "bench", "tests", "fuzz", "interop"] {
        collect(&root().join(folder), "rs", &mut found);
    }
    assert!(found.len() > 20, "only {} source files found below {}", found.len(), root().display());
    relative(found)
}

/// All documents, relative to the root, in order of their names.
pub(crate) fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["crates", "bench", "docs"] {
        collect(&root().join(folder), "md", &mut found);
    }
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        found.push(root().join(name));
    }
    relative(found)
}

fn relative(mut found: Vec<PathBuf>) -> Vec<PathBuf> {
    found.sort();
    found.iter().map(|path| path.strip_prefix(root()).expect("it lies below the root").to_owned()).collect()
}

/// The text of a file, by its path from the root.
pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn collect(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, extension, found);
            }
        } else if path.extension().is_some_and(|its| its == extension) {
            found.push(path);
        }
    }
}
