//! Every error code has a page in `docs/errors/`, and every page a code.
//!
//! A code is a literal in the body of a `fn code(&self) -> &'static str`, in any crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::workspace::{read, root, sources};

const SIGNATURE: &str = "fn code(&self) -> &'static str {";

/// Each code, and the files that give it.
fn codes() -> BTreeMap<String, Vec<PathBuf>> {
    let mut codes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in sources().into_iter().filter(|path| path.starts_with("crates")) {
        for code in codes_in(&read(&path)) {
            codes.entry(code).or_default().push(path.clone());
        }
    }
    codes
}

fn codes_in(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for after in source.split(SIGNATURE).skip(1) {
        let body = after.split("\n    }\n").next().unwrap_or_default();
        found.extend(body.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    found
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let codes = codes();
    assert!(codes.len() > 30, "only {} codes found: has `{SIGNATURE}` been renamed?", codes.len());
    let mut wrong = Vec::new();
    for (code, files) in &codes {
        if !page(code).is_file() {
            wrong.push(format!("docs/errors/{code}.md is missing; the code stands in {files:?}"));
        }
    }
    for name in pages() {
        if name != "README" && !codes.contains_key(&name) {
            wrong.push(format!("docs/errors/{name}.md describes a code that no crate gives"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The codes of the variants that a source file's `is_retryable` names.
fn retryable_in(source: &str) -> Vec<String> {
    let body = |signature: &str| {
        let after = source.split(signature).nth(1).unwrap_or_default();
        after.split("\n    }\n").next().unwrap_or_default().to_owned()
    };
    let names = body("fn is_retryable(&self) -> bool {");
    let names: Vec<&str> = names.split("::").skip(1).map(word).collect();
    let arms = body(SIGNATURE);
    let arms = arms.lines().filter_map(|line| {
        let (pattern, code) = line.split_once("=> \"")?;
        Some((word(pattern.split_once("::")?.1), code.split('"').next()?.to_owned()))
    });
    arms.filter(|(name, _)| names.contains(name)).map(|(_, code)| code).collect()
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

#[test]
fn pages_and_code_agree_on_what_is_retryable() {
    let retryable: Vec<String> = sources()
        .iter()
        .filter(|path| path.starts_with("crates"))
        .flat_map(|path| retryable_in(&read(path)))
        .collect();
    assert!(retryable.contains(&"queue_full".to_owned()), "`is_retryable` was not understood: {retryable:?}");
    for code in codes().into_keys().filter(|code| page(code).is_file()) {
        let text = std::fs::read_to_string(page(&code)).expect("it is a file");
        let says = text.contains("**Retryable:** yes");
        assert_eq!(says, retryable.contains(&code), "docs/errors/{code}.md and is_retryable() differ");
    }
}

#[test]
fn a_page_says_what_it_must() {
    let index = read(Path::new("docs/errors/README.md"));
    let mut wrong = Vec::new();
    for name in pages().into_iter().filter(|name| name != "README") {
        let text = std::fs::read_to_string(page(&name)).expect("it was listed just now");
        if !text.starts_with(&format!("# {name}\n")) {
            wrong.push(format!("{name}.md must open with `# {name}`"));
        }
        for section in
            ["**Retryable:**", "**HTTP status:**", "## What it means", "## What changed", "## What to do"]
        {
            if !text.contains(section) {
                wrong.push(format!("{name}.md has no `{section}`"));
            }
        }
        if !index.contains(&format!("]({name}.md)")) {
            wrong.push(format!("{name}.md is not in docs/errors/README.md"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn page(code: &str) -> PathBuf {
    root().join("docs/errors").join(format!("{code}.md"))
}

fn pages() -> Vec<String> {
    let folder = root().join("docs/errors");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("a folder that was opened can be read").path())
        .filter_map(|path| Some(path.file_name()?.to_str()?.strip_suffix(".md")?.to_owned()))
        .collect();
    names.sort();
    names
}
