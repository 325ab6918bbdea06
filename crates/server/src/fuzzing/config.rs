//! A `dwell.toml`.

use std::path::Path;

use crate::config::{ConfigErrorKind, Loaded, Origin, read_text};

/// The whole of the bytes is the file.
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
    // What is shown of the keys that the file has says the same when it is read. A default is left out: a relative
    // path counts from the file where it is said there, and from where the server runs where it is not.
    let again = read_text(&shown(&loaded), file).expect("what is shown can be read");
    assert_eq!(shown(&again), shown(&loaded));
}

/// The keys and the settings that were said, as TOML; tokens, sinks and schedules are not shown whole.
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
