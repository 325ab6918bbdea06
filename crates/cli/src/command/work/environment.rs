//! The environment variables that describe a message to its command.

use std::ffi::OsStr;

use dwell_store::Delivery;

/// The prefix of variables that hold headers.
const HEADER: &str = "DWELL_HEADER_";

/// The variables to set.
pub(super) fn set(delivery: &Delivery) -> Vec<(String, String)> {
    let message = &delivery.message;
    let mut all = vec![
        ("DWELL_ID".to_owned(), message.id.to_string()),
        ("DWELL_NUMBER".to_owned(), message.number.to_string()),
        ("DWELL_QUEUE".to_owned(), message.queue.as_str().to_owned()),
        ("DWELL_ATTEMPT".to_owned(), delivery.attempt().to_string()),
        ("DWELL_DUE".to_owned(), message.standing.due.to_string()),
        ("DWELL_CREATED".to_owned(), message.created.to_string()),
    ];
    all.extend(message.key.as_ref().map(|key| ("DWELL_KEY".to_owned(), key.as_str().to_owned())));
    for (name, value) in message.headers.iter() {
        // The name that tracing libraries read.
        let variable = if name.eq_ignore_ascii_case("traceparent") || name.eq_ignore_ascii_case("tracestate")
        {
            name.to_ascii_uppercase()
        } else {
            let byte = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            format!("{HEADER}{}", name.chars().map(byte).collect::<String>())
        };
        all.push((variable, value.to_owned()));
    }
    // No system call accepts a text with a NUL.
    all.retain(|(_, value)| !value.contains('\0'));
    all
}

/// Whether a variable of this process describes a message, which is then another one.
pub(super) fn is_of_a_message(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    name.starts_with(HEADER) || ["DWELL_KEY", "TRACEPARENT", "TRACESTATE"].contains(&name)
}
