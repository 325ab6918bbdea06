//! The index of routes: every method and path there is, and who answers. `docs/http.md` has the same table, and
//! the OpenAPI document is held against this one.

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::{App, dead, health, messages, metrics, pages, put, queues, settle, take};

/// A method and a path, and who answers.
pub(crate) struct Route {
    /// As it stands in a request.
    #[cfg(test)]
    pub(crate) method: Method,
    /// With `{name}` for a segment that varies.
    pub(crate) path: &'static str,
    /// Answers this method alone.
    pub(crate) handler: MethodRouter<Arc<App>>,
}

fn route<H, T>(method: Method, path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<App>>,
    T: 'static,
{
    let filter = MethodFilter::try_from(method.clone()).expect("routes have methods of HTTP's own");
    Route {
        #[cfg(test)]
        method,
        path,
        handler: on(filter, handler),
    }
}

fn get<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Route {
    route(Method::GET, path, handler)
}

fn post<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Route {
    route(Method::POST, path, handler)
}

fn put<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Route {
    route(Method::PUT, path, handler)
}

fn patch<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Route {
    route(Method::PATCH, path, handler)
}

fn delete<H: Handler<T, Arc<App>>, T: 'static>(path: &'static str, handler: H) -> Route {
    route(Method::DELETE, path, handler)
}

/// All routes.
pub(crate) fn routes() -> Vec<Route> {
    vec![
        post("/v1/queues/{queue}/messages", put::put),
        get("/v1/queues/{queue}/messages", messages::list),
        post("/v1/queues/{queue}/messages:batch", put::put_many),
        post("/v1/messages:batch", put::put_many),
        post("/v1/queues/{queue}/messages:get", messages::get_many),
        post("/v1/queues/{queue}/messages:cancel", messages::cancel_many),
        post("/v1/queues/{queue}/messages:reschedule", messages::reschedule_many),
        get("/v1/queues/{queue}/messages/{id}", messages::get),
        delete("/v1/queues/{queue}/messages/{id}", messages::cancel),
        post("/v1/queues/{queue}/messages/{id}/take", take::take_id),
        post("/v1/queues/{queue}/messages/{id}/reschedule", messages::reschedule),
        post("/v1/queues/{queue}/messages/{id}/revive", dead::revive_one),
        post("/v1/queues/{queue}/messages/{id}/discard", dead::discard_one),
        put("/v1/queues/{queue}/keys/{key}", put::put_key),
        get("/v1/queues/{queue}/keys/{key}", messages::get),
        delete("/v1/queues/{queue}/keys/{key}", messages::cancel),
        post("/v1/queues/{queue}/keys/{key}/reschedule", messages::reschedule),
        get("/v1/numbers/{number}", messages::get_number),
        post("/v1/queues/{queue}/take", take::take),
        post("/v1/take", take::take),
        post("/v1/receipts/{receipt}/{action}", settle::settle),
        post("/v1/settle", settle::settle_many),
        post("/v1/queues/{queue}/dead/revive", dead::revive),
        post("/v1/queues/{queue}/dead/discard", dead::discard),
        get("/v1/queues", queues::list),
        get("/v1/queues/{queue}", queues::stats),
        delete("/v1/queues/{queue}", queues::delete),
        patch("/v1/queues/{queue}/settings", queues::configure),
        post("/v1/queues/{queue}/pause", queues::pause),
        post("/v1/queues/{queue}/resume", queues::resume),
        post("/v1/queues/{queue}/purge", queues::purge),
        get("/v1/limits", queues::limits),
        get("/health/live", health::live),
        get("/health/ready", health::ready),
        get("/metrics", metrics::metrics),
        get("/openapi.json", pages::openapi),
        get("/errors/{code}", pages::error),
        get("/", pages::root),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The lines of the table in the documentation, each with its method and all its paths: `POST /a/b` `/c` is two.
    fn documented() -> BTreeSet<String> {
        let page = include_str!("../../../../docs/http.md");
        let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
        let mut routes = BTreeSet::new();
        for cell in cells.filter(|cell| methods.iter().any(|method| cell.starts_with(method))) {
            let mut full = ("", "");
            for word in cell.split('`').map(str::trim).filter(|word| word.contains('/')) {
                if let Some((method, path)) = word.split_once(' ') {
                    full = (method, path.split('?').next().unwrap_or_default());
                    routes.insert(format!("{} {}", full.0, full.1));
                } else {
                    // As many segments as are given stand for as many at the end.
                    let base: Vec<&str> = full.1.split('/').collect();
                    let kept = base.len() - word.matches('/').count();
                    routes.insert(format!("{} {}{word}", full.0, base[..kept].join("/")));
                }
            }
        }
        routes
    }

    #[test]
    fn the_documentation_has_the_same_routes() {
        let actions = ["ack", "retry", "release", "bury", "extend"];
        let mut ours = BTreeSet::new();
        for Route { method, path, .. } in routes() {
            match path.strip_suffix("{action}") {
                Some(stem) => ours.extend(actions.map(|action| format!("{method} {stem}{action}"))),
                None => drop(ours.insert(format!("{method} {path}"))),
            }
        }
        assert_eq!(ours, documented());
    }
}
