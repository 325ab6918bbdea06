//! A `dwell.toml`, its parser and its display.

use std::path::Path;

use crate::config::{ConfigErrorKind, Loaded, Origin, read_text};

/// The input is the whole file.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let file = Path::new("/etc/dwell/dwell.toml");
    let loaded = match read_text(text, file) {
        Ok(loaded) => loaded,
        Err(errors) => {
            assert!(!errors.is_empty(), "a refusal has a reason");
            let lines = text.matches('\n').count() + 1;
            for error in errors {
                let said = error.detail.chars().count();
                assert!((10..1_500).contains(&said), "{said} characters: {error}");
                if let Origin::File { line, column, .. } = error.origin {
                    assert!((1..=lines).contains(&line) && column >= 1, "{error}");
                } else {
                    assert_eq!(error.kind, ConfigErrorKind::Exposed, "{error}");
                }
            }
            return;
        }
    };
    // The displayed keys of the file parse to the same values. Defaults are left out: a relative path is relative to
    // the file where it is set there, and to the working directory where it is not.
    let again = read_text(&shown(&loaded), file).expect("what is shown can be read");
    assert_eq!(shown(&again), shown(&loaded));
}

/// The keys and settings that were set, as TOML; tokens, sinks and schedules are not displayed completely.
fn shown(loaded: &Loaded) -> String {
    let said = loaded.shown.iter().filter(|shown| shown.origin != Origin::Default);
    let is_table = |key: &str| ["tokens.", "sinks.", "schedules."].iter().any(|table| key.starts_with(table));
    let rows = said.filter(|shown| !is_table(&shown.key));
    let has_tokens = !loaded.configuration.server.http.tokens.is_empty();
    let mut text: String = rows.map(|shown| format!("{} = {}\n", shown.key, shown.value)).collect();
    if has_tokens {
        let digest = "0".repeat(64);
        text.push_str(&format!("[[tokens]]\nname = \"x\"\nsha256 = \"{digest}\"\nscopes = [\"metrics\"]\n"));
    }
    text
}
