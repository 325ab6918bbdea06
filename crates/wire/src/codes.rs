//! The codes of refusals: each with its status, a short title, and whether a retry can help.

/// A code, as it is answered over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The stable code.
    pub code: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// One short sentence, the same for every occurrence of the code.
    pub title: &'static str,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

const fn lasting(status: u16, code: &'static str, title: &'static str) -> Code {
    Code { code, status, title, retryable: false }
}

const fn retryable(status: u16, code: &'static str, title: &'static str) -> Code {
    Code { code, status, title, retryable: true }
}

/// Every code that a server answers with. `docs/http.md` lists the same codes; a test compares them.
pub const CODES: &[Code] = &[
    // The request itself.
    lasting(400, "malformed_request", "The request cannot be read"),
    lasting(400, "unknown_parameter", "There is no such parameter here"),
    lasting(400, "invalid_parameter", "A parameter has a value it cannot have"),
    lasting(400, "wait_too_long", "The wait is longer than this server allows"),
    lasting(400, "too_many_names", "The take names more queues than it may"),
    lasting(400, "malformed_json", "The body is not JSON"),
    lasting(400, "unknown_field", "There is no such JSON field here"),
    lasting(400, "invalid_field", "A JSON field has a value it cannot have"),
    lasting(400, "missing_field", "Something that is required is missing"),
    lasting(400, "conflicting_fields", "Two things were given that exclude each other"),
    lasting(401, "token_required", "A token is required"),
    lasting(401, "token_unknown", "The token is not known"),
    lasting(403, "forbidden", "The token is not good for this"),
    lasting(403, "queue_reserved", "The queue can only be read"),
    lasting(403, "foreign_host", "The request is meant for another host"),
    lasting(403, "foreign_origin", "The request comes from a foreign web page"),
    lasting(404, "unknown_route", "There is nothing at this path"),
    lasting(405, "method_not_allowed", "This path has no such method"),
    retryable(408, "request_timeout", "The request did not arrive in time"),
    lasting(413, "request_too_large", "The request is too large"),
    lasting(415, "unsupported_media_type", "The content type is not the one expected"),
    retryable(503, "too_many_connections", "There are too many connections"),
    retryable(503, "overloaded", "The server or its store holds as much as it may"),
    retryable(503, "shutting_down", "The server is shutting down"),
    lasting(500, "internal", "The server made a mistake"),
    // Values that no store would accept.
    lasting(400, "due_out_of_range", "The instant lies outside 1970 to 9999"),
    lasting(400, "malformed_instant", "This is not an instant"),
    lasting(400, "malformed_delay", "This is not a duration"),
    lasting(400, "negative_delay", "The delay is negative"),
    lasting(400, "unknown_level", "The queue has no such delay level"),
    lasting(400, "expires_before_due", "The message would expire before it is due"),
    lasting(400, "malformed_id", "This is not a message id"),
    lasting(400, "malformed_number", "This is not a message number"),
    lasting(400, "malformed_receipt", "This is not a receipt"),
    lasting(400, "malformed_cursor", "This is not a cursor"),
    lasting(400, "invalid_queue_name", "This cannot name a queue"),
    lasting(400, "invalid_key", "This cannot be a key"),
    lasting(400, "invalid_holder", "This cannot name a holder"),
    lasting(400, "invalid_idempotency_key", "This cannot be an idempotency key"),
    lasting(400, "invalid_header", "This cannot be a message's header"),
    lasting(400, "error_text_too_long", "The error text is too long"),
    lasting(400, "invalid_setting", "The setting cannot have this value"),
    lasting(413, "body_too_large", "The message's body is too large"),
    lasting(413, "batch_too_large", "The batch has too many items"),
    lasting(431, "headers_too_large", "The message's headers are too large"),
    lasting(400, "invalid_schedule", "This cannot be a schedule"),
    lasting(400, "malformed_cron", "This is not a cron expression"),
    lasting(400, "ambiguous_dialect", "The cron expression means two things"),
    lasting(400, "cron_never_fires", "The schedule would never run"),
    lasting(400, "unknown_zone", "There is no such time zone"),
    // What a store finds.
    lasting(404, "unknown_queue", "There is no such queue"),
    lasting(404, "message_not_found", "There is no such message"),
    lasting(404, "unknown_sink", "There is no such sink"),
    lasting(404, "unknown_schedule", "There is no such schedule"),
    lasting(409, "unreadable_schedule", "The schedule cannot be read by this version"),
    retryable(409, "schedule_busy", "The schedule is being run at this moment"),
    lasting(410, "lease_lost", "The lease is lost"),
    lasting(409, "key_taken", "The key is taken"),
    retryable(409, "leased", "Somebody holds the message"),
    retryable(409, "busy", "An open transaction holds the key or the message"),
    lasting(409, "dead", "The message is dead"),
    lasting(409, "not_dead", "The message is not dead"),
    lasting(409, "not_leased", "Nobody holds the message"),
    lasting(409, "lease_changed", "Somebody holds the message by another take"),
    lasting(422, "idempotency_mismatch", "The idempotency key stands for another message"),
    lasting(409, "setting_fixed", "The setting cannot change now"),
    retryable(429, "queue_full", "The queue is full"),
    retryable(429, "too_many_queues", "There are too many queues"),
    retryable(429, "too_many_leased", "Too many messages are leased"),
    retryable(429, "too_many_waiting", "Too many takes are waiting"),
    retryable(500, "outcome_unknown", "It may or may not have happened"),
    retryable(507, "disk_full", "The disk is nearly full"),
    lasting(503, "exhausted", "Ids are used up"),
    lasting(503, "foreign_data", "The store cannot read its data"),
    lasting(503, "closed", "The store is closed"),
    retryable(503, "unavailable", "The store cannot serve"),
];

/// The entry of `code`.
pub fn lookup(code: &str) -> Option<&'static Code> {
    CODES.iter().find(|entry| entry.code == code)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_the_documentation_lists_the_same() {
        let codes: BTreeSet<&str> = CODES.iter().map(|entry| entry.code).collect();
        assert_eq!(codes.len(), CODES.len());
        let page = include_str!("../../../docs/http.md");
        let mut documented = BTreeSet::new();
        for line in page.lines().filter(|line| line.starts_with("| 4") || line.starts_with("| 5")) {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let status: u16 = cells.next().unwrap().parse().unwrap();
            for code in cells.next().unwrap().split(", ").map(|cell| cell.trim_matches('`')) {
                assert_eq!(lookup(code).map(|entry| entry.status), Some(status), "{code}");
                documented.insert(code);
            }
        }
        assert_eq!(documented, codes);
    }
}
