//! Links between documents lead somewhere.

use std::path::{Path, PathBuf};

use crate::workspace::{documents, read, root};

#[test]
fn links_between_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for document in documents() {
        let text = read(&document);
        for target in targets(&text) {
            let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => root().join(&document),
                path => root().join(document.parent().unwrap_or(Path::new(""))).join(path),
            };
            seen += 1;
            if !file.exists() {
                wrong.push(format!("{}: {target} leads nowhere", document.display()));
            } else if !fragment.is_empty() && !headings(&file).contains(&fragment.to_owned()) {
                wrong.push(format!("{}: {target}: there is no such heading", document.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where a document's links lead, but for those that leave the repository.
fn targets(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace)).collect()
}

/// A document's headings as links name them: in lower case, spaces as hyphens, other marks left out.
fn headings(file: &PathBuf) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    headings.map(anchor).collect()
}
