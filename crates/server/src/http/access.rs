//! Who may call which route: the one table, and the two places where it is looked at.
//!
//! Ground rules:
//! 1. Who calls is found out before anything else is done with a request; a token that is not known ends it.
//! 2. What a route asks for stands in [`ROUTES`]. A route that is not in it is for those who may do everything.
//! 3. Where the queues stand in the body or the query, the handler asks for each: it calls
//!    [`Call::require`](super::call::Call::require).

use axum::body::Body;
use axum::extract::{MatchedPath, RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, Response, header};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use dwell_model::{QueueName, Receipt};

use super::{Problem, Refusal};
use crate::security::{Caller, Tokens, Verb};

/// What a route asks of its caller. Any one of the verbs will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Nothing: health, documentation.
    Nothing,
    /// A token, whatever it is good for.
    AnyToken,
    /// One of these, in the queue that the path names.
    InQueue(&'static [Verb]),
    /// One of these, in the queue of the receipt in the path.
    InReceipt(&'static [Verb]),
    /// One of these, in each queue that the request names: the handler asks.
    InEach(&'static [Verb]),
    /// One of these, in every queue there may be.
    Everywhere(&'static [Verb]),
}

use Asks::{AnyToken, Everywhere, InEach, InQueue, InReceipt, Nothing};

const PUT: &[Verb] = &[Verb::Put];
const TAKE: &[Verb] = &[Verb::Take];
const MANAGE: &[Verb] = &[Verb::Manage];
/// Whoever puts may replace what is there by its key, and so may take it back or move it.
const MOVE: &[Verb] = &[Verb::Put, Verb::Manage];
/// Whoever takes sees all bodies anyway.
pub(crate) const LOOK: &[Verb] = &[Verb::Take, Verb::Manage];
const ANY: &[Verb] = &[Verb::Put, Verb::Take, Verb::Manage];
const EVERYTHING: &[Verb] = MANAGE;

/// Every route. `docs/security.md` has the same table; a test compares them.
pub(crate) const ROUTES: &[(&str, &str, Asks)] = &[
    ("POST", "/v1/queues/{queue}/messages", InQueue(PUT)),
    ("GET", "/v1/queues/{queue}/messages", InQueue(LOOK)),
    ("POST", "/v1/queues/{queue}/messages:batch", InQueue(PUT)),
    ("POST", "/v1/messages:batch", InEach(PUT)),
    ("POST", "/v1/queues/{queue}/messages:get", InQueue(LOOK)),
    ("POST", "/v1/queues/{queue}/messages:cancel", InQueue(MOVE)),
    ("POST", "/v1/queues/{queue}/messages:reschedule", InQueue(MOVE)),
    ("GET", "/v1/queues/{queue}/messages/{id}", InQueue(LOOK)),
    ("DELETE", "/v1/queues/{queue}/messages/{id}", InQueue(MOVE)),
    ("POST", "/v1/queues/{queue}/messages/{id}/take", InQueue(TAKE)),
    ("POST", "/v1/queues/{queue}/messages/{id}/reschedule", InQueue(MOVE)),
    ("POST", "/v1/queues/{queue}/messages/{id}/revive", InQueue(MANAGE)),
    ("POST", "/v1/queues/{queue}/messages/{id}/discard", InQueue(MANAGE)),
    ("PUT", "/v1/queues/{queue}/keys/{key}", InQueue(PUT)),
    ("GET", "/v1/queues/{queue}/keys/{key}", InQueue(LOOK)),
    ("DELETE", "/v1/queues/{queue}/keys/{key}", InQueue(MOVE)),
    ("POST", "/v1/queues/{queue}/keys/{key}/reschedule", InQueue(MOVE)),
    ("GET", "/v1/numbers/{number}", InEach(LOOK)),
    ("POST", "/v1/queues/{queue}/take", InQueue(TAKE)),
    ("POST", "/v1/take", InEach(TAKE)),
    ("POST", "/v1/receipts/{receipt}/{action}", InReceipt(TAKE)),
    ("POST", "/v1/settle", InEach(TAKE)),
    ("POST", "/v1/queues/{queue}/dead/revive", InQueue(MANAGE)),
    ("POST", "/v1/queues/{queue}/dead/discard", InQueue(MANAGE)),
    ("GET", "/v1/queues", InEach(ANY)),
    ("GET", "/v1/queues/{queue}", InQueue(ANY)),
    ("DELETE", "/v1/queues/{queue}", InQueue(MANAGE)),
    ("PATCH", "/v1/queues/{queue}/settings", InQueue(MANAGE)),
    ("POST", "/v1/queues/{queue}/pause", InQueue(MANAGE)),
    ("POST", "/v1/queues/{queue}/resume", InQueue(MANAGE)),
    ("POST", "/v1/queues/{queue}/purge", InQueue(MANAGE)),
    ("GET", "/v1/limits", AnyToken),
    ("GET", "/metrics", Everywhere(&[Verb::Metrics, Verb::Manage])),
    ("GET", "/openapi.json", Nothing),
    ("GET", "/health/live", Nothing),
    ("GET", "/health/ready", Nothing),
    ("GET", "/errors/{code}", Nothing),
    ("GET", "/", Nothing),
];

/// What the route asks for. What nobody has thought of is for those alone who may do everything.
fn asked_by(method: &Method, path: &str) -> Asks {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let entry = ROUTES.iter().find(|(known, route, _)| *known == method.as_str() && *route == path);
    match entry {
        Some((.., asks)) => *asks,
        // A path that has other methods is answered 405, which tells what the documentation tells too.
        None if ROUTES.iter().any(|(_, route, _)| *route == path) => Nothing,
        None => Everywhere(EVERYTHING),
    }
}

/// Who sends a request with these headers.
///
/// # Errors
/// `token_unknown`, also for what is no bearer token at all.
pub(crate) fn caller(tokens: &Tokens, headers: &HeaderMap) -> Result<Caller, Problem> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (given.next(), given.next());
    let unknown = || {
        let detail = "the server does not know this token; send `Authorization: Bearer TOKEN`, once, with one \
                      that it was configured with";
        Problem::new(Refusal::TokenUnknown, detail)
    };
    // Without tokens nobody is asked, and what is said is not looked at.
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

/// Lets through what the caller may do.
pub(crate) async fn authorize(
    path: MatchedPath,
    params: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let caller = request.extensions().get::<Caller>().expect("the connection adds it to each request");
    let asks = asked_by(request.method(), path.as_str());
    let param = |name| {
        let params = params.as_ref().ok()?;
        params.iter().find(|(given, _)| *given == name).map(|(_, value)| value)
    };
    let allowed = match asks {
        Nothing => Ok(()),
        AnyToken | InEach(_) => named(caller),
        // A name or receipt that is none is left to the handler, which does nothing with it but say so.
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

/// Refuses whoever has not said who they are.
fn named(caller: &Caller) -> Result<(), Problem> {
    if *caller == Caller::Nameless {
        return Err(Problem::new(
            Refusal::TokenRequired,
            "this server asks who is calling: send `Authorization: Bearer TOKEN`",
        ));
    }
    Ok(())
}

/// Refuses whoever may do none of `verbs` in `queue`.
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
    Problem::new(Refusal::Forbidden, detail)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_nobody_has_thought_of_is_for_those_who_may_do_everything() {
        assert_eq!(asked_by(&Method::GET, "/v1/new"), Everywhere(EVERYTHING));
        assert_eq!(asked_by(&Method::HEAD, "/v1/queues/{queue}/messages"), InQueue(LOOK));
        assert_eq!(asked_by(&Method::PATCH, "/v1/take"), Nothing);
    }

    #[test]
    fn every_route_that_is_served_is_in_the_table() {
        for route in crate::http::routes::routes() {
            let known = ROUTES
                .iter()
                .any(|(method, path, _)| *method == route.method.as_str() && *path == route.path);
            assert!(known, "{} {} is not in ROUTES: say what it asks for", route.method, route.path);
        }
    }

    #[test]
    fn the_scheme_is_read_in_any_case_and_nothing_else_is_a_token() {
        for text in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(bearer(&HeaderValue::from_static(text)), Some(&b"abc"[..]), "{text}");
        }
        for text in ["", "abc", "Bearer", "Basic abc", "Bearerabc"] {
            assert_eq!(bearer(&HeaderValue::from_static(text)), None, "{text}");
        }
    }

    /// `POST /v1/queues/{queue}/messages` and the like, in tables whose first column it is; `/a` `/b` at its
    /// end are two routes.
    fn documented(page: &str) -> BTreeSet<String> {
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.filter_map(|line| line.split(" | ").next());
        cells.map(|cell| cell.trim_start_matches("| ").replace('`', "")).collect()
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let page = include_str!("../../../../docs/security.md");
        let table = page.split("## Which scope for which route").nth(1).unwrap();
        let rows: BTreeSet<String> = ROUTES
            .iter()
            .map(|(method, route, asks)| {
                let words = |verbs: &[Verb]| {
                    let words: Vec<&str> = verbs.iter().map(|verb| verb.as_str()).collect();
                    words.join(", ")
                };
                let asks = match asks {
                    Nothing => "no token".to_owned(),
                    AnyToken => "any token".to_owned(),
                    InQueue(verbs) | InReceipt(verbs) | InEach(verbs) => words(verbs),
                    Everywhere(verbs) => format!("{}, for all queues", words(verbs)),
                };
                format!("| `{method} {route}` | {asks} |")
            })
            .collect();
        let missing: Vec<&String> = rows.iter().filter(|row| !table.contains(row.as_str())).collect();
        assert!(missing.is_empty(), "docs/security.md lacks\n{missing:#?}");
        assert_eq!(documented(table).len(), ROUTES.len(), "docs/security.md has routes that are not there");
    }
}
