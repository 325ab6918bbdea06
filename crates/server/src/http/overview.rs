//! The overview of all queues, and recent events.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_store::{Error, QueueStats, StateCounts, Store};
use dwell_time::Clock;
use dwell_wire::{Census, Forecast, Overview, Recent, TopQueue};

use super::call::HttpCall;
use super::reply::json;
use super::{App, Problem};

/// The number of queues in a page of the walk.
const PAGE: usize = 256;

/// The number of queues listed for each count.
const TOP: usize = 100;

/// How long the first request waits for a census, so that a small one is in its answer.
const PATIENCE: Duration = Duration::from_millis(25);

/// The spans of the forecast: a minute, an hour, a day and thirty days.
const WITHIN_MS: [u64; 4] = [60_000, 3_600_000, 86_400_000, 30 * 86_400_000];

/// `GET /v1/overview`
pub(crate) async fn overview(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    call.no_query()?;
    let walk = || walk(Arc::clone(&app.store), Arc::clone(&app.clock));
    let census = app.overviews.ask((), &app.clock, PATIENCE, walk).await;
    let census = census.transpose()?.map(|census| Census::clone(&census));
    let now = app.clock.now();
    app.metrics.queues.rank(now.mono_ms);
    let recent = app.metrics.queues.recent(None, now.wall).unwrap_or_default();
    Ok(json(StatusCode::OK, &Overview { now: now.wall, census, recent }))
}

/// `GET /v1/queues/{queue}/recent`
pub(crate) async fn recent(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    call.no_query()?;
    let now = app.clock.now();
    app.metrics.queues.rank(now.mono_ms);
    let recent = app.metrics.queues.recent(Some(&queue), now.wall);
    let kept = recent.is_some();
    Ok(json(StatusCode::OK, &Recent { queue, now: now.wall, kept, recent: recent.unwrap_or_default() }))
}

/// Walks over all queues, a page at a time, so that other calls of the store run in between.
async fn walk(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Census, Error> {
    let mut top: Vec<TopQueue> = Vec::new();
    let (mut queues, mut unread, mut waiting) = (0, 0, 0);
    let mut counts = StateCounts::default();
    let mut after = None;
    loop {
        let page: Vec<QueueStats> = store.queues(after, PAGE.min(store.limits().batch.max(1))).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        for stats in &page {
            queues += 1;
            if stats.unread.is_some() {
                unread += 1;
                continue;
            }
            counts = counts + stats.counts;
            waiting += stats.waiting;
            top.push(stats.into());
        }
        if top.len() > 2 * BY.len() * TOP {
            keep_top(&mut top);
        }
        tokio::task::yield_now().await;
    }
    keep_top(&mut top);
    top.sort_unstable_by(|one, other| one.queue.cmp(&other.queue));
    let now = clock.now().wall;
    let edges: Vec<_> = WITHIN_MS.iter().map(|ms| now.saturating_after(*ms)).collect();
    let due = store.forecast(None, edges.clone()).await?;
    let forecast = Forecast::of(None, now, edges, due);
    Ok(Census { as_of: clock.now().wall, queues, unread, counts: counts.into(), waiting, top, forecast })
}

/// What queues are sorted by.
const BY: [fn(&TopQueue) -> u64; 5] = [
    |queue| queue.counts.scheduled,
    |queue| queue.counts.ready,
    |queue| queue.counts.leased,
    |queue| queue.counts.dead,
    |queue| queue.waiting,
];

/// Keeps those that are among the first by one of the counts.
fn keep_top(queues: &mut Vec<TopQueue>) {
    let mut is_kept = vec![queues.len() <= TOP; queues.len()];
    for by in BY {
        let mut order: Vec<usize> = (0..queues.len()).filter(|at| by(&queues[*at]) > 0).collect();
        order.sort_unstable_by_key(|at| (Reverse(by(&queues[*at])), &queues[*at].queue));
        order.into_iter().take(TOP).for_each(|at| is_kept[at] = true);
    }
    let mut is_kept = is_kept.into_iter();
    queues.retain(|_| is_kept.next().unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use dwell_wire::StateCounts;

    use super::*;

    #[test]
    fn a_queue_stays_that_is_among_the_first_by_any_count() {
        let queue = |at: u64| TopQueue {
            queue: format!("q{at:04}").parse().unwrap(),
            counts: StateCounts {
                scheduled: at,
                ready: 1_000 - at,
                ready_urgent: 0,
                leased: u64::from(at == 500),
                dead: 0,
            },
            waiting: 0,
            next_due: None,
            pause: "running".into(),
        };
        let mut queues: Vec<TopQueue> = (0..1_000).map(queue).collect();
        keep_top(&mut queues);
        let kept: Vec<u64> = queues.iter().map(|queue| queue.counts.scheduled).collect();
        let expected: Vec<u64> = (0..100).chain([500]).chain(900..1_000).collect();
        assert_eq!(kept, expected);
        let before = queues.clone();
        keep_top(&mut queues);
        assert_eq!(queues, before);
    }

    #[test]
    fn few_queues_all_stay_though_they_are_empty() {
        let empty = |at: u64| TopQueue {
            queue: format!("q{at}").parse().unwrap(),
            counts: StateCounts { scheduled: 0, ready: 0, ready_urgent: 0, leased: 0, dead: 0 },
            waiting: 0,
            next_due: None,
            pause: "paused".into(),
        };
        let mut queues: Vec<TopQueue> = (0..TOP as u64).map(empty).collect();
        keep_top(&mut queues);
        assert_eq!(queues.len(), TOP);
    }
}
