//! Every error code has a page in `docs/errors/`, and every page a code.
//!
//! A code is a literal in the body of a `fn code(&self) -> &'static str`, in any crate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::workspace::{read, root, sources};

const SIGNATURES: [&str; 2] = ["fn code(&self) -> &'static str {", "fn code(&self) -> &str {"];

/// Each code, and the files that give it.
fn codes() -> BTreeMap<String, Vec<PathBuf>> {
    let mut codes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in crates() {
        for code in codes_in(&read(&path)) {
            codes.entry(code).or_default().push(path.clone());
        }
    }
    codes
}

fn crates() -> impl Iterator<Item = PathBuf> {
    sources().into_iter().filter(|path| path.starts_with("crates"))
}

fn codes_in(source: &str) -> Vec<String> {
    // An attribute names features, no codes.
    let lines = code_body(source).lines().filter(|line| !line.trim_start().starts_with("#["));
    lines.flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The body of the function that gives a file's codes; empty if it has none.
fn code_body(source: &str) -> &str {
    SIGNATURES.iter().map(|signature| body_of(source, signature)).find(|body| !body.is_empty()).unwrap_or("")
}

fn body_of<'a>(source: &'a str, signature: &str) -> &'a str {
    let after = source.split(signature).nth(1).unwrap_or_default();
    after.split("\n    }\n").next().unwrap_or_default()
}

/// The codes that a source file calls retryable: those of the variants that its `is_retryable` names, and
/// those that stand in a table as `retryable(status, "code", …)`.
fn retryable_in(source: &str) -> Vec<String> {
    let body = body_of(source, "fn is_retryable(&self) -> bool {");
    let named =
        body.lines().filter(|line| !line.contains("=> false")).flat_map(|line| line.split("::").skip(1));
    let named: Vec<&str> = named.map(word).collect();
    let arms = code_body(source).lines().filter_map(|line| {
        let (pattern, code) = line.split_once("=> \"")?;
        Some((word(pattern.split_once("::")?.1), code.split('"').next()?.to_owned()))
    });
    let arms = arms.filter(|(name, _)| named.contains(name)).map(|(_, code)| code);
    arms.chain(statuses_in(source, "retryable").into_keys()).collect()
}

/// Codes and statuses that stand in a table as `function(status, "code", …)`.
fn statuses_in(source: &str, function: &str) -> BTreeMap<String, String> {
    let rows = source.lines().filter_map(|line| {
        let row = line.trim_start().strip_prefix(function)?.strip_prefix('(')?;
        let (status, rest) = row.split_once(", \"")?;
        Some((rest.split('"').next()?.to_owned(), status.to_owned()))
    });
    rows.collect()
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let codes = codes();
    assert!(codes.len() > 30, "only {} codes found: has `fn code` been renamed?", codes.len());
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

#[test]
fn pages_and_code_agree_on_what_is_retryable() {
    let retryable: Vec<String> = crates().flat_map(|path| retryable_in(&read(&path))).collect();
    assert!(retryable.contains(&"queue_full".to_owned()), "`is_retryable` was not understood: {retryable:?}");
    for code in codes().into_keys().filter(|code| page(code).is_file()) {
        let text = std::fs::read_to_string(page(&code)).expect("it is a file");
        let says = text.contains("**Retryable:** yes");
        assert_eq!(says, retryable.contains(&code), "docs/errors/{code}.md and is_retryable() differ");
    }
}

#[test]
fn pages_and_server_agree_on_the_status() {
    let text: String =
        crates().filter(|path| path.starts_with("crates/wire")).map(|path| read(&path)).collect();
    let mut statuses = statuses_in(&text, "lasting");
    assert!(statuses.contains_key("lease_lost"), "the table of codes was not understood: {statuses:?}");
    statuses.extend(statuses_in(&text, "retryable"));
    for (code, status) in statuses {
        let text = std::fs::read_to_string(page(&code)).unwrap_or_else(|error| panic!("{code}: {error}"));
        let line = format!("**HTTP status:** {status}\n");
        assert!(text.contains(&line), "docs/errors/{code}.md: the server answers {status}");
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
