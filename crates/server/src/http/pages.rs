//! Pages for people: the web page, the root's text, the explanation of an error, and the answer to unknown paths.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};
use dwell_wire::lookup;

use super::call::HttpCall;
use super::reply::{JSON, SharedBody, with_type};
use super::{App, HttpRefusal, Problem};
use crate::openapi::document;
use crate::page;

const ROOT: &str = concat!(
    "dwell ",
    env!("CARGO_PKG_VERSION"),
    "\n",
    "\n",
    "A delay queue: hold a message until its moment.\n",
    "\n",
    "  put   curl -d 'close order 7' 'HOST/v1/queues/orders/messages?delay=30m'\n",
    "  take  curl -X POST 'HOST/v1/queues/orders/take?wait=30s'\n",
    "  ack   curl -X POST 'HOST/v1/receipts/RECEIPT/ack'\n",
    "\n",
    "Documentation: docs/http.md in ",
    env!("CARGO_PKG_REPOSITORY"),
    "\n",
);

/// The pages of `docs/errors`, by code: those of the server, and those of the command line, the client and the stores.
/// Empty where the crate is built outside the repository.
const PAGES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/error_pages.rs"));

fn text(body: impl Into<Body>) -> Response<Body> {
    with_type(StatusCode::OK, HeaderValue::from_static("text/plain; charset=utf-8"), body.into())
}

/// `GET /`
pub(crate) async fn root(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    if app.config.page && call.wants_html() {
        return Ok(shared(page::document(call.takes_gzip())));
    }
    let mut response = text(ROOT);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// `GET /page/{digest}/{file}`
pub(crate) async fn page_file(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    let (digest, name) = (call.param("digest").unwrap_or_default(), call.param("file").unwrap_or_default());
    match page::file(digest, name, call.takes_gzip()).filter(|_| app.config.page) {
        Some(response) => Ok(shared(response)),
        None => Err(unknown_route().await),
    }
}

/// The answer, whose body is in memory once for all requests.
fn shared(mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(SharedBody);
    response
}

/// `GET /openapi.json`
pub(crate) async fn openapi(State(_): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    Ok(shared(with_type(StatusCode::OK, JSON, document().into())))
}

/// `GET /errors/{code}`: the page that a problem's `type` points to.
pub(crate) async fn error(State(_): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    let code = call.param("code").unwrap_or_default();
    if let Some((_, page)) = PAGES.iter().find(|(known, _)| *known == code) {
        return Ok(text(*page));
    }
    let Some(known) = lookup(code) else { return Err(unknown_route().await) };
    let page = format!("docs/errors/{code}.md in {}", env!("CARGO_PKG_REPOSITORY"));
    Ok(text(format!("{code} (status {})\n\n{}. More is said in {page}\n", known.status, known.title)))
}

/// The answer where there is no route.
pub(crate) async fn unknown_route() -> Problem {
    Problem::new(HttpRefusal::UnknownRoute, "there is nothing at this path; docs/http.md lists what there is")
}

/// The answer where the path has other methods. The router adds `Allow`.
pub(crate) async fn method_not_allowed() -> Problem {
    Problem::new(HttpRefusal::MethodNotAllowed, "this path has other methods; see `Allow`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_server_and_of_others_has_its_page() {
        for code in dwell_wire::CODES.iter().map(|code| code.code).chain(["locked", "usage", "unreachable"]) {
            let page = PAGES.iter().find(|(known, _)| *known == code).map(|(_, page)| *page);
            assert!(page.is_some_and(|page| page.starts_with(&format!("# {code}\n"))), "{code}: {page:?}");
        }
    }
}
