//! What falls due, as the server's store counts it.

use dwell_model::{QueueName, Timestamp};
use dwell_store::{Forecast, Result};
use dwell_wire::{Operation, Overview, Path, Span};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use crate::Client;
use crate::call::Call;
use crate::client::Inner;

/// The number of queues that are asked about at the same time.
const SIDE_BY_SIDE: usize = 16;

impl Client {
    /// All queues at a glance. The server counts them while somebody asks, so the first answer may be without.
    ///
    /// # Errors
    /// As every call.
    pub async fn overview(&self) -> Result<Overview> {
        let call = Call::read(Path::of(Operation::Overview, &[]));
        self.inner.reactor.enter(self.inner.send(call)).await
    }

    /// What of a queue, or of all of them, falls due in the steps of a span, which begins now by the server's clock.
    ///
    /// # Errors
    /// As [`forecast`](dwell_store::Store::forecast).
    pub async fn forecast_span(&self, queue: Option<&QueueName>, span: Span) -> Result<dwell_wire::Forecast> {
        let path = match queue {
            Some(queue) => Path::of(Operation::Forecast, &[queue.as_str()]),
            None => Path::of(Operation::ForecastAll, &[]),
        };
        let call = Call::read(path.query("span", span.as_str()));
        self.inner.reactor.enter(self.inner.send(call)).await
    }
}

impl Inner {
    pub(crate) async fn forecast(
        &self,
        queues: Option<Vec<QueueName>>,
        edges: &[Timestamp],
    ) -> Result<Forecast> {
        Forecast::check(edges)?;
        let asked = rising(edges);
        let of_all = if let Some(names) = queues {
            let of_one = |name: QueueName| {
                let asked = &asked;
                async move { self.counted(Path::of(Operation::Forecast, &[name.as_str()]), asked).await }
            };
            let mut counted = stream::iter(names.into_iter().map(of_one)).buffered(SIDE_BY_SIDE);
            let mut sum = Forecast::none(asked.len());
            while let Some(counted) = counted.try_next().await? {
                sum.add(&counted);
            }
            sum
        } else {
            self.counted(Path::of(Operation::ForecastAll, &[]), &asked).await?
        };
        Ok(in_order(of_all, &asked, edges))
    }

    async fn counted(&self, path: Path, asked: &[Timestamp]) -> Result<Forecast> {
        let edges = asked.iter().map(Timestamp::to_string).collect::<Vec<_>>().join(",");
        let answer: dwell_wire::Forecast = self.send(Call::read(path.query("edges", edges))).await?;
        answer.into_store(asked).map_err(|reason| self.unreadable(true, &reason))
    }
}

/// The instants as a server wants them: at least one, and each later than the one before it.
fn rising(edges: &[Timestamp]) -> Vec<Timestamp> {
    let mut rising = edges.to_vec();
    rising.sort_unstable();
    rising.dedup();
    if rising.is_empty() {
        rising.push(Timestamp::MIN);
    }
    rising
}

/// What was counted by each of `asked`, by `edges`, all of which are among them.
fn in_order(counted: Forecast, asked: &[Timestamp], edges: &[Timestamp]) -> Forecast {
    let due_by = |edge: &Timestamp| counted.due_by[asked.partition_point(|asked| asked < edge)];
    Forecast { due_by: edges.iter().map(due_by).collect(), ..counted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms).unwrap()
    }

    #[test]
    fn instants_are_asked_about_in_order_and_once_each() {
        let edges = [at(30), at(10), at(30), at(20)];
        let asked = rising(&edges);
        assert_eq!(asked, [at(10), at(20), at(30)]);
        let counted = Forecast { scheduled: 9, due_by: vec![1, 2, 3], within: 4 };
        let answer = in_order(counted.clone(), &asked, &edges);
        assert_eq!(answer, Forecast { due_by: vec![3, 1, 3, 2], ..counted });
    }

    #[test]
    fn a_server_is_asked_about_some_instant_where_none_is_named() {
        let asked = rising(&[]);
        assert_eq!(asked.len(), 1);
        let counted = Forecast { scheduled: 9, due_by: vec![1], within: 0 };
        assert_eq!(in_order(counted, &asked, &[]), Forecast { scheduled: 9, due_by: vec![], within: 0 });
    }
}
