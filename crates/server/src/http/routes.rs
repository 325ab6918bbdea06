//! Maps routes to handlers: one for each operation of the table of routes.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use dwell_wire::{Operation, ROUTES, Route};

use super::{
    App, access, dead, forecast, health, me, messages, metrics, overview, pages, put, queues, schedules,
    settle, sinks, take,
};

/// The handler of a route, for its method alone.
fn handler(route: &Route) -> MethodRouter<Arc<App>> {
    let method = Method::from_bytes(route.method.as_bytes()).ok().and_then(|method| method.try_into().ok());
    let method: MethodFilter = method.expect("routes have methods of HTTP's own");
    match route.operation {
        Operation::Put => on(method, put::put),
        Operation::List => on(method, messages::list),
        Operation::PutMany => on(method, put::put_many),
        Operation::PutManyAnywhere => on(method, put::put_many),
        Operation::GetMany => on(method, messages::get_many),
        Operation::CancelMany => on(method, messages::cancel_many),
        Operation::RescheduleMany => on(method, messages::reschedule_many),
        Operation::Get => on(method, messages::get),
        Operation::Cancel => on(method, messages::cancel),
        Operation::TakeOne => on(method, take::take_id),
        Operation::Reschedule => on(method, messages::reschedule),
        Operation::Revive => on(method, dead::revive_one),
        Operation::Discard => on(method, dead::discard_one),
        Operation::PutKey => on(method, put::put_key),
        Operation::GetKey => on(method, messages::get),
        Operation::CancelKey => on(method, messages::cancel),
        Operation::RescheduleKey => on(method, messages::reschedule),
        Operation::GetNumber => on(method, messages::get_number),
        Operation::Take => on(method, take::take),
        Operation::TakeFrom => on(method, take::take),
        Operation::Settle => on(method, settle::settle),
        Operation::GetReceipt => on(method, messages::get_receipt),
        Operation::SettleMany => on(method, settle::settle_many),
        Operation::ExpireLeases => on(method, settle::expire_leases),
        Operation::ReviveMany => on(method, dead::revive),
        Operation::DiscardMany => on(method, dead::discard),
        Operation::Queues => on(method, queues::list),
        Operation::Queue => on(method, queues::stats),
        Operation::DeleteQueue => on(method, queues::delete),
        Operation::Configure => on(method, queues::configure),
        Operation::Pause => on(method, queues::pause),
        Operation::Resume => on(method, queues::resume),
        Operation::Purge => on(method, queues::purge),
        Operation::Forecast => on(method, forecast::of_queue),
        Operation::Recent => on(method, overview::recent),
        Operation::ForecastAll => on(method, forecast::of_all),
        Operation::Overview => on(method, overview::overview),
        Operation::Deaths => on(method, dead::deaths),
        Operation::Sinks => on(method, sinks::list),
        Operation::Sink => on(method, sinks::one),
        Operation::TestSink => on(method, sinks::test),
        Operation::PauseSink => on(method, sinks::pause),
        Operation::ResumeSink => on(method, sinks::resume),
        Operation::Schedules => on(method, schedules::list),
        Operation::Schedule => on(method, schedules::one),
        Operation::PutSchedule => on(method, schedules::put),
        Operation::DeleteSchedule => on(method, schedules::delete),
        Operation::NextRuns => on(method, schedules::next),
        Operation::RunSchedule => on(method, schedules::run),
        Operation::PauseSchedule => on(method, schedules::pause),
        Operation::ResumeSchedule => on(method, schedules::resume),
        Operation::Limits => on(method, queues::limits),
        Operation::Me => on(method, me::me),
        Operation::Live => on(method, health::live),
        Operation::Ready => on(method, health::ready),
        Operation::Metrics => on(method, metrics::metrics),
        Operation::OpenApi => on(method, pages::openapi),
        Operation::Error => on(method, pages::error),
        Operation::Root => on(method, pages::root),
        Operation::PageFile => on(method, pages::page_file),
    }
}

/// The router of all [`ROUTES`], each of which requires the scopes of its row. A path in no row, or with another
/// method, requires none: its answer only reveals what is documented.
pub(crate) fn router(app: Arc<App>) -> Router {
    let router = ROUTES.iter().fold(Router::new(), |router, route| {
        let authorize = from_fn_with_state(route.asks, access::authorize);
        router.route(route.path, handler(route).route_layer(authorize))
    });
    router
        .fallback(pages::unknown_route)
        .method_not_allowed_fallback(pages::method_not_allowed)
        .with_state(app)
}
