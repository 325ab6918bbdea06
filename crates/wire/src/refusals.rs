//! Groups of codes that operations may be refused with: parts of the table of routes.

/// For every operation.
pub(crate) const ANY: &[&str] = &[
    "malformed_request",
    "unknown_parameter",
    "invalid_parameter",
    "token_unknown",
    "foreign_host",
    "foreign_origin",
    "too_many_connections",
    "internal",
];
/// Where a token may be required.
pub(crate) const SCOPED: &[&str] = &["token_required", "forbidden"];
/// Where the store is called.
pub(crate) const STORE: &[&str] = &["closed", "unavailable", "foreign_data", "busy"];
/// Where a message or setting may change.
pub(crate) const CHANGE: &[&str] = &["outcome_unknown", "disk_full", "queue_reserved"];
pub(crate) const QUEUE: &[&str] = &["invalid_queue_name"];
pub(crate) const ID: &[&str] = &["malformed_id"];
pub(crate) const WITH_KEY: &[&str] = &["invalid_key"];
/// Where a body is read.
pub(crate) const SENT: &[&str] = &["request_timeout", "request_too_large", "overloaded"];
/// Where JSON is read.
pub(crate) const JSON: &[&str] = &[
    "malformed_json",
    "unknown_field",
    "invalid_field",
    "missing_field",
    "conflicting_fields",
    "unsupported_media_type",
];
/// Where a message gets an instant.
pub(crate) const WHEN: &[&str] = &[
    "conflicting_fields",
    "malformed_delay",
    "negative_delay",
    "malformed_instant",
    "due_out_of_range",
    "unknown_level",
    "expires_before_due",
];
pub(crate) const DURATIONS: &[&str] = &["malformed_delay", "negative_delay", "due_out_of_range"];
pub(crate) const INSTANTS: &[&str] = &["malformed_instant", "due_out_of_range"];
pub(crate) const FOUND: &[&str] = &["unknown_queue", "message_not_found", "overloaded"];
pub(crate) const STANDING: &[&str] = &["unknown_queue", "message_not_found", "leased", "dead"];
pub(crate) const PUT: &[&str] = &[
    "invalid_idempotency_key",
    "invalid_header",
    "invalid_key",
    "invalid_setting",
    "headers_too_large",
    "body_too_large",
    "key_taken",
    "idempotency_mismatch",
    "leased",
    "queue_full",
    "too_many_queues",
    "exhausted",
    "shutting_down",
];
pub(crate) const TAKE: &[&str] = &[
    "overloaded",
    "too_many_leased",
    "too_many_waiting",
    "too_many_queues",
    "invalid_setting",
    "invalid_holder",
];
pub(crate) const DEAD: &[&str] = &["unknown_queue", "message_not_found", "not_dead", "key_taken"];
pub(crate) const BATCH: &[&str] = &["batch_too_large", "conflicting_fields"];
/// Where a schedule is named. The store may have one that this version cannot read.
pub(crate) const SCHEDULE: &[&str] = &[
    "unknown_schedule",
    "unreadable_schedule",
    "schedule_busy",
    "invalid_schedule",
    "malformed_cron",
    "ambiguous_dialect",
    "unknown_zone",
    "queue_reserved",
    "overloaded",
];
pub(crate) const DEFINITION: &[&str] = &["cron_never_fires"];
