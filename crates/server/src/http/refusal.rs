//! The server's own refusals, which involve no store.

/// A kind of refusal. Each has a page in `docs/errors/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The path or the query is not UTF-8, or the body was cut off.
    MalformedRequest,
    /// The route has no such parameter.
    UnknownParameter,
    /// The parameter cannot have this value, or was given twice.
    InvalidParameter,
    /// A take asks for a longer wait than the server allows.
    WaitTooLong,
    /// A take names too many queues.
    TooManyNames,
    /// The body is not JSON, or not UTF-8.
    MalformedJson,
    /// The JSON has an unknown field.
    UnknownField,
    /// A JSON field has the wrong type or range.
    InvalidField,
    /// A required field is missing.
    MissingField,
    /// Two fields exclude each other.
    ConflictingFields,
    /// The route requires a token, and none was sent.
    TokenRequired,
    /// The token is unknown.
    TokenUnknown,
    /// The token does not allow this.
    Forbidden,
    /// `Host` names another server.
    ForeignHost,
    /// `Origin` names a foreign page.
    ForeignOrigin,
    /// The path does not exist.
    UnknownRoute,
    /// The sink does not exist.
    UnknownSink,
    /// The path has other methods.
    MethodNotAllowed,
    /// The body paused for too long.
    RequestTimeout,
    /// The request is too large to be held in memory.
    RequestTooLarge,
    /// The route does not accept the content type.
    UnsupportedMediaType,
    /// The limit on connections is reached.
    TooManyConnections,
    /// The limit on bytes held by requests and answers is reached.
    Overloaded,
    /// The server is shutting down.
    ShuttingDown,
    /// The server met an unknown error.
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
