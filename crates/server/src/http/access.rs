//! Authentication and authorization of requests, which happen in two places.
//!
//! Ground rules:
//! 1. A request is authenticated before anything else is done with it; an unknown token ends it.
//! 2. The scopes that a route requires are in its row of [`ROUTES`](dwell_wire::ROUTES), and are checked before its
//!    handler runs.
//! 3. Where the body or the query names the queues, the handler checks each of them with
//!    [`Call::require`](super::call::HttpCall::require).

use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, header};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use dwell_model::{QueueName, Receipt};
use dwell_wire::{Asks, Asks::*, Verb};

use super::{HttpRefusal, Problem};
use crate::security::{Caller, Tokens};

/// The caller of a request with these headers.
///
/// # Errors
/// `token_unknown`, also for anything that is not a bearer token.
pub(crate) fn caller(tokens: &Tokens, headers: &HeaderMap) -> Result<Caller, Problem> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (given.next(), given.next());
    let unknown = || {
        let detail = "the server does not know this token; send `Authorization: Bearer TOKEN`, once, with one \
                      that it was configured with";
        Problem::new(HttpRefusal::TokenUnknown, detail)
    };
    // Without tokens there is no authentication, and the header is ignored.
    let shown = match first {
        Some(value) if !tokens.is_empty() => {
            Some(bearer(value).filter(|_| second.is_none()).ok_or_else(unknown)?)
        }
        _ => None,
    };
    tokens.caller(shown).ok_or_else(unknown)
}

/// The token of `Bearer TOKEN`; the scheme in any case (RFC 9110, section 11.1).
fn bearer(value: &HeaderValue) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = value.as_bytes().split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii())
}

/// Lets authorized requests pass.
pub(crate) async fn authorize(
    State(asks): State<Asks>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let caller = request.extensions().get::<Caller>().expect("the connection adds it to each request");
    let param = |name| {
        let params = params.as_ref().ok()?;
        params.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    };
    let allowed = match asks {
        Nothing => Ok(()),
        AnyToken | InEach(_) => named(caller),
        // An invalid name or receipt is left to the handler, which does nothing with it but refuse it.
        InQueue(verbs) => match param("queue").and_then(|name| QueueName::new(name).ok()) {
            Some(queue) => require(caller, verbs, &queue),
            None => named(caller),
        },
        InReceipt(verbs) => match param("receipt").and_then(|text| text.parse::<Receipt>().ok()) {
            Some(receipt) => require(caller, verbs, &receipt.queue),
            None => named(caller),
        },
        Everywhere(verbs) => match named(caller) {
            Ok(()) if verbs.iter().any(|verb| caller.may_everywhere(*verb)) => Ok(()),
            Ok(()) => Err(forbidden(verbs, "*")),
            Err(problem) => Err(problem),
        },
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Refuses callers that are not authenticated.
fn named(caller: &Caller) -> Result<(), Problem> {
    if *caller == Caller::Nameless {
        return Err(Problem::new(
            HttpRefusal::TokenRequired,
            "this server asks who is calling: send `Authorization: Bearer TOKEN`",
        ));
    }
    Ok(())
}

/// Refuses a caller who may do none of `verbs` in `queue`.
pub(super) fn require(caller: &Caller, verbs: &[Verb], queue: &QueueName) -> Result<(), Problem> {
    named(caller)?;
    if verbs.iter().any(|verb| caller.may(*verb, queue)) {
        return Ok(());
    }
    Err(forbidden(verbs, queue.as_str()))
}

fn forbidden(verbs: &[Verb], queue: &str) -> Problem {
    let scopes: Vec<String> = verbs
        .iter()
        .map(|verb| match verb {
            Verb::Metrics => verb.as_str().to_owned(),
            verb => format!("{}:{queue}", verb.as_str()),
        })
        .collect();
    let detail = format!("the token is not good for this: it needs the scope {}", scopes.join(" or "));
    Problem::new(HttpRefusal::Forbidden, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_read_in_any_case_and_nothing_else_is_a_token() {
        for text in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(bearer(&HeaderValue::from_static(text)), Some(&b"abc"[..]), "{text}");
        }
        for text in ["", "abc", "Bearer", "Basic abc", "Bearerabc"] {
            assert_eq!(bearer(&HeaderValue::from_static(text)), None, "{text}");
        }
    }
}
