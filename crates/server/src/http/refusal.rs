//! What the server itself refuses, before any store is asked.

/// A kind of refusal. Each has a page in `docs/errors/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The path or the query is not UTF-8, or the body broke off.
    MalformedRequest,
    /// The route has no such parameter.
    UnknownParameter,
    /// The parameter can not have this value, or was given twice.
    InvalidParameter,
    /// A take wants to wait longer than the server lets it.
    WaitTooLong,
    /// A take names more queues than it may.
    TooManyNames,
    /// The body is no JSON, or no UTF-8.
    MalformedJson,
    /// JSON with a field that does not exist there.
    UnknownField,
    /// JSON with a field of another type or range.
    InvalidField,
    /// Something required is not there.
    MissingField,
    /// Two things were given of which only one can hold.
    ConflictingFields,
    /// The route asks who is calling, and no token was shown.
    TokenRequired,
    /// The token that was shown is not one that the server knows.
    TokenUnknown,
    /// The token is not good for this.
    Forbidden,
    /// `Host` names somebody else.
    ForeignHost,
    /// `Origin` names somebody else's page.
    ForeignOrigin,
    /// There is nothing at this path.
    UnknownRoute,
    /// The server runs no such sink.
    UnknownSink,
    /// The path has other methods.
    MethodNotAllowed,
    /// The body stood still for too long.
    RequestTimeout,
    /// What would have to be held in memory is too large.
    RequestTooLarge,
    /// The content type is not one that the route reads.
    UnsupportedMediaType,
    /// There are as many connections as there may be.
    TooManyConnections,
    /// Requests and answers hold as many bytes as they may.
    Overloaded,
    /// The server is about to stop.
    ShuttingDown,
    /// The server met an error that it does not know.
    Internal,
}

impl Refusal {
    /// The stable code of this kind.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refusal::MalformedRequest => "malformed_request",
            Refusal::UnknownParameter => "unknown_parameter",
            Refusal::InvalidParameter => "invalid_parameter",
            Refusal::WaitTooLong => "wait_too_long",
            Refusal::TooManyNames => "too_many_names",
            Refusal::MalformedJson => "malformed_json",
            Refusal::UnknownField => "unknown_field",
            Refusal::InvalidField => "invalid_field",
            Refusal::MissingField => "missing_field",
            Refusal::ConflictingFields => "conflicting_fields",
            Refusal::TokenRequired => "token_required",
            Refusal::TokenUnknown => "token_unknown",
            Refusal::Forbidden => "forbidden",
            Refusal::ForeignHost => "foreign_host",
            Refusal::ForeignOrigin => "foreign_origin",
            Refusal::UnknownRoute => "unknown_route",
            Refusal::UnknownSink => "unknown_sink",
            Refusal::MethodNotAllowed => "method_not_allowed",
            Refusal::RequestTimeout => "request_timeout",
            Refusal::RequestTooLarge => "request_too_large",
            Refusal::UnsupportedMediaType => "unsupported_media_type",
            Refusal::TooManyConnections => "too_many_connections",
            Refusal::Overloaded => "overloaded",
            Refusal::ShuttingDown => "shutting_down",
            Refusal::Internal => "internal",
        }
    }
}
