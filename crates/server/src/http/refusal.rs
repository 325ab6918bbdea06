//! The server's own refusals, which involve no store.

/// A kind of refusal. Each has a page in `docs/errors/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpRefusal {
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

impl HttpRefusal {
    /// The stable code of this kind.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            HttpRefusal::MalformedRequest => "malformed_request",
            HttpRefusal::UnknownParameter => "unknown_parameter",
            HttpRefusal::InvalidParameter => "invalid_parameter",
            HttpRefusal::WaitTooLong => "wait_too_long",
            HttpRefusal::TooManyNames => "too_many_names",
            HttpRefusal::MalformedJson => "malformed_json",
            HttpRefusal::UnknownField => "unknown_field",
            HttpRefusal::InvalidField => "invalid_field",
            HttpRefusal::MissingField => "missing_field",
            HttpRefusal::ConflictingFields => "conflicting_fields",
            HttpRefusal::TokenRequired => "token_required",
            HttpRefusal::TokenUnknown => "token_unknown",
            HttpRefusal::Forbidden => "forbidden",
            HttpRefusal::ForeignHost => "foreign_host",
            HttpRefusal::ForeignOrigin => "foreign_origin",
            HttpRefusal::UnknownRoute => "unknown_route",
            HttpRefusal::UnknownSink => "unknown_sink",
            HttpRefusal::MethodNotAllowed => "method_not_allowed",
            HttpRefusal::RequestTimeout => "request_timeout",
            HttpRefusal::RequestTooLarge => "request_too_large",
            HttpRefusal::UnsupportedMediaType => "unsupported_media_type",
            HttpRefusal::TooManyConnections => "too_many_connections",
            HttpRefusal::Overloaded => "overloaded",
            HttpRefusal::ShuttingDown => "shutting_down",
            HttpRefusal::Internal => "internal",
        }
    }
}
