//! Every test that `docs/bad-input.md` names is there, and every row names one.

use crate::workspace::{read, root};

const PAGE: &str = "docs/bad-input.md";

/// `server/http/put::name`: the file that it is in, and its name.
fn place(test: &str) -> Option<(String, &str)> {
    let (module, name) = test.split_once("::")?;
    let (package, file) = module.split_once('/')?;
    Some((format!("crates/{package}/tests/{file}.rs"), name))
}

#[test]
fn every_test_that_is_named_is_there() {
    let page = read(PAGE.as_ref());
    let rows: Vec<&str> =
        page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what")).collect();
    assert!(rows.len() > 20, "only {} rows", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let tests: Vec<_> = row.split('`').skip(1).step_by(2).filter_map(place).collect();
        if tests.is_empty() {
            wrong.push(format!("no test is named: {row}"));
        }
        for (file, name) in tests {
            let path = root().join(&file);
            let text = std::fs::read_to_string(path).unwrap_or_default();
            if !text.contains(&format!("fn {name}(")) {
                wrong.push(format!("{PAGE} names {file}: {name}, which is not there"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
