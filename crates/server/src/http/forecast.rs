//! Forecasts of due messages, per queue and over all queues.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_model::Timestamp;
use dwell_store::{Error, Store};
use dwell_time::Clock;
use dwell_wire::{Forecast, Span};
use tokio::time::timeout;

use super::call::HttpCall;
use super::reply::json;
use super::{App, HttpRefusal, Problem};
use crate::query::Query;

/// How long a request for all queues waits for the first count, or for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// The requested kind of forecast.
enum Wanted {
    Span(Span),
    Edges(Vec<Timestamp>),
}

impl Wanted {
    fn read(mut query: Query) -> Result<Wanted, Problem> {
        let edges = query.text("edges")?;
        let span = query.word("span", &Span::ALL)?;
        query.finish()?;
        match (edges, span) {
            (Some(_), Some(_)) => {
                Err(Problem::new(HttpRefusal::ConflictingFields, "give `edges` or `span`, not both"))
            }
            (Some(edges), None) => Ok(Wanted::Edges(parse(&edges)?)),
            (None, span) => Ok(Wanted::Span(span.unwrap_or(Span::Hour))),
        }
    }

    fn edges(self, now: Timestamp) -> Vec<Timestamp> {
        match self {
            Wanted::Span(span) => span.edges(now),
            Wanted::Edges(edges) => edges,
        }
    }
}

/// Instants separated by commas, in rising order.
fn parse(text: &str) -> Result<Vec<Timestamp>, Problem> {
    let most = dwell_store::Forecast::MAX_EDGES;
    let invalid =
        |reason: String| Problem::new(HttpRefusal::InvalidParameter, format!("parameter 'edges': {reason}"));
    let count = text.split(',').count();
    if count > most {
        return Err(invalid(format!("{count} instants are more than {most}")).with_limit(most as u64));
    }
    let edges = text.split(',').map(str::parse).collect::<Result<Vec<Timestamp>, _>>()?;
    if edges.is_sorted_by(|one, next| one < next) {
        Ok(edges)
    } else {
        Err(invalid("each instant is to be later than the one before it".to_owned()))
    }
}

/// `GET /v1/queues/{queue}/forecast`
pub(crate) async fn of_queue(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let now = app.clock.now().wall;
    let edges = Wanted::read(call.query()?)?.edges(now);
    let counted = app.store.forecast(Some(vec![queue.clone()]), edges.clone()).await?;
    Ok(json(StatusCode::OK, &Forecast::of(Some(queue), now, edges, counted)))
}

/// `GET /v1/forecast`
pub(crate) async fn of_all(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let span = match Wanted::read(call.query()?)? {
        Wanted::Span(span) => span,
        Wanted::Edges(edges) => {
            let now = app.clock.now().wall;
            let counted = count_in_turn(&app, edges.clone()).await?;
            return Ok(json(StatusCode::OK, &Forecast::of(None, now, edges, counted)));
        }
    };
    let walk = || count(Arc::clone(&app.store), Arc::clone(&app.clock), span);
    match app.forecasts.ask(span, &app.clock, PATIENCE, walk).await {
        Some(found) => Ok(json(StatusCode::OK, &*found?)),
        None => Err(still_counting()),
    }
}

fn still_counting() -> Problem {
    let detail = "what falls due is being counted over all queues, and has not been yet; try again later";
    Problem::new(HttpRefusal::Overloaded, detail)
}

/// Counts by instants that the caller names, which no other request can share. One such count runs at a time, or
/// callers could start a walk over all queues with every request. When the client disconnects the store goes on
/// counting, and the turn ends with the count.
async fn count_in_turn(app: &App, edges: Vec<Timestamp>) -> Result<dwell_store::Forecast, Problem> {
    let Ok(Ok(turn)) = timeout(PATIENCE, Arc::clone(&app.forecast_turn).acquire_owned()).await else {
        return Err(still_counting());
    };
    let store = Arc::clone(&app.store);
    let counting = tokio::spawn(async move {
        let _turn = turn;
        store.forecast(None, edges).await
    });
    match counting.await {
        Ok(counted) => Ok(counted?),
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Err(Error::Closed.into()),
    }
}

async fn count(store: Arc<dyn Store>, clock: Arc<dyn Clock>, span: Span) -> dwell_store::Result<Forecast> {
    let now = clock.now().wall;
    let edges = span.edges(now);
    let counted = store.forecast(None, edges.clone()).await?;
    Ok(Forecast::of(None, now, edges, counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn spans_are_cut_at_whole_steps() {
        let now = at("2026-11-26T22:31:07.120Z");
        for (span, count, first, last) in [
            (Span::Minute, 60, "2026-11-26T22:31:08Z", "2026-11-26T22:32:07Z"),
            (Span::Hour, 60, "2026-11-26T22:32:00Z", "2026-11-26T23:31:00Z"),
            (Span::Day, 24, "2026-11-26T23:00:00Z", "2026-11-27T22:00:00Z"),
            (Span::Month, 30, "2026-11-27T00:00:00Z", "2026-12-26T00:00:00Z"),
        ] {
            let edges = span.edges(now);
            assert_eq!((edges.len(), edges[0], edges[count - 1]), (count, at(first), at(last)), "{span:?}");
        }
        let last = Span::Month.edges(Timestamp::MAX);
        assert!(last.iter().all(|edge| *edge == Timestamp::MAX), "there is nothing later");
    }

    #[test]
    fn edges_rise_and_are_not_too_many() {
        let edges = |text: &str| Wanted::read(Query::parse(Some(text)).unwrap());
        let code = |text: &str| match edges(text) {
            Err(problem) => serde_json::to_value(problem).unwrap()["code"].as_str().unwrap().to_owned(),
            Ok(_) => "none".to_owned(),
        };
        assert_eq!(code("edges=2026-11-26T22:00:00Z,2026-11-26T23:00:00Z"), "none");
        assert_eq!(code("edges=2026-11-26T22:00:00Z,2026-11-26T22:00:00Z"), "invalid_parameter");
        assert_eq!(code(&format!("edges={}", ["2026-11-26T22:00:00Z"; 201].join(","))), "invalid_parameter");
        assert_eq!(code("edges="), "malformed_instant");
        assert_eq!(code("edges=12026-01-01T00:00:00Z"), "due_out_of_range");
        assert_eq!(code("edges=2026-11-26T22:00:00Z&span=hour"), "conflicting_fields");
        assert_eq!(code("span=year"), "invalid_parameter");
        assert_eq!(code("spans=hour"), "unknown_parameter");
    }
}
