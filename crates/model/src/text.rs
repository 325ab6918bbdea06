//! Shortens foreign text before it becomes part of an error.

/// The first 80 characters of `text`, so that an error never carries a megabyte.
pub(crate) fn excerpt(text: &str) -> Box<str> {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.into()
}
