//! The caller, and what it is allowed to do.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_wire::{Me, Verb};

use super::call::HttpCall;
use super::reply::json;
use super::{App, Problem};
use crate::security::Caller;

/// `GET /v1/me`
pub(crate) async fn me(State(_): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    let caller = call.caller();
    let me = match &caller {
        Caller::Bearer(token) => Me {
            name: Some(Cow::Borrowed(&token.name)),
            scopes: token.scopes.iter().map(|scope| scope.to_string().into()).collect(),
        },
        Caller::Anybody => Me { name: None, scopes: Verb::ALL.map(for_all_queues).into() },
        // Never reached: the route requires a token.
        Caller::Nameless => Me { name: None, scopes: Vec::new() },
    };
    Ok(json(StatusCode::OK, &me))
}

fn for_all_queues(verb: Verb) -> Cow<'static, str> {
    if Verb::OF_QUEUES.contains(&verb) { format!("{}:*", verb.as_str()).into() } else { verb.as_str().into() }
}
