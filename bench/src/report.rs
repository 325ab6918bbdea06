//! Results as a table and as one line of JSON.

use std::fmt;

use serde_json::{Value, json};

/// Whether a higher or a lower value of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    work: String,
    metric: String,
    ours: Vec<f64>,
    beside: Option<(&'static str, Better, Vec<f64>)>,
}

impl Row {
    /// A number without a peer.
    pub(crate) fn alone(work: &str, metric: &str, ours: Vec<f64>) -> Row {
        Row { work: work.to_owned(), metric: metric.to_owned(), ours, beside: None }
    }

    /// Our number and a peer's, with a sample per round.
    pub(crate) fn beside(
        work: &str,
        metric: &str,
        better: Better,
        ours: Vec<f64>,
        peer: &'static str,
        theirs: Vec<f64>,
    ) -> Row {
        Row { beside: Some((peer, better, theirs)), ..Row::alone(work, metric, ours) }
    }

    /// How many times better our number is.
    fn ratio(&self) -> Option<f64> {
        let (_, better, theirs) = self.beside.as_ref()?;
        Some(match better {
            Better::Higher => median(&self.ours) / median(theirs),
            Better::Lower => median(theirs) / median(&self.ours),
        })
    }

    fn json(&self) -> Value {
        let peer = self.beside.as_ref().map(|(peer, ..)| peer);
        let theirs = self.beside.as_ref().map(|(.., theirs)| theirs);
        json!({
            "work": self.work,
            "metric": self.metric,
            "peer": peer,
            "ours": median(&self.ours),
            "theirs": theirs.map(|theirs| median(theirs)),
            "ratio": self.ratio(),
            "samples": { "ours": self.ours, "theirs": theirs },
        })
    }

    fn cells(&self) -> [String; 6] {
        let (peer, theirs) = match &self.beside {
            Some((peer, _, theirs)) => ((*peer).to_owned(), number(median(theirs))),
            None => Default::default(),
        };
        let ratio = self.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        [self.work.clone(), self.metric.clone(), number(median(&self.ours)), peer, theirs, ratio]
    }
}

/// The results of a run.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) scenario: String,
    pub(crate) machine: String,
    /// The divisor of the scenario's amount of work, and of allowed memory.
    pub(crate) divisor: u64,
    pub(crate) rounds: usize,
    /// The text that the works of all rows contain, if the rows were selected.
    pub(crate) only: Option<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    /// The results as one line.
    ///
    /// Other programs read it: fields may be added, but none may change its meaning. `samples` are the rounds that the
    /// medians are taken of.
    pub(crate) fn json(&self) -> Value {
        json!({
            "scenario": self.scenario,
            "machine": self.machine,
            "quick": self.divisor == 10,
            "divisor": self.divisor,
            "rounds": self.rounds,
            "only": self.only,
            "notes": self.notes,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<Value>>(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quick = match self.divisor {
            1 => String::new(),
            10 => ", quick".to_owned(),
            divisor => format!(", a {divisor}th of the work"),
        };
        writeln!(
            f,
            "{}: medians of {} rounds{quick}; ratio: how many times better ours is",
            self.scenario, self.rounds
        )?;
        writeln!(f, "{}", self.machine)?;
        for note in &self.notes {
            writeln!(f, "{note}")?;
        }
        let head = ["work", "metric", "ours", "peer", "theirs", "ratio"].map(str::to_owned);
        let lines: Vec<[String; 6]> = [head].into_iter().chain(self.rows.iter().map(Row::cells)).collect();
        let width =
            |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..6).map(width).collect();
        writeln!(f)?;
        for line in &lines {
            let [work, metric, ours, peer, theirs, ratio] = line;
            let text = format!(
                "{work:0$}  {metric:1$}  {ours:>2$}  {peer:3$}  {theirs:>4$}  {ratio:>5$}",
                widths[0], widths[1], widths[2], widths[3], widths[4], widths[5]
            );
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

/// The median; for an even number the mean of the middle two, and NaN without samples.
fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

/// Formats a number: whole and with thousands separated from 1,000 on, with three decimals below 10.
pub(crate) fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        return format!("{value:.3}");
    }
    if value.abs() < 1_000.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_says_how_many_times_better_ours_is_whichever_way_the_metric_points() {
        let faster = Row::beside("put", "per_s", Better::Higher, vec![400.0], "fjall", vec![100.0]);
        let sooner = Row::beside("put", "p50_ms", Better::Lower, vec![1.0], "bare", vec![4.0]);
        assert_eq!((faster.ratio(), sooner.ratio()), (Some(4.0), Some(4.0)));
        assert_eq!(Row::alone("put", "rss_bytes", vec![1.0]).ratio(), None);
    }

    #[test]
    fn json_has_the_fields_that_were_promised_and_nulls_without_a_peer() {
        let alone = Row::alone("put", "rss_bytes", vec![3.0, 1.0, 2.0]).json();
        assert_eq!((alone["ours"].as_f64(), alone["peer"].is_null()), (Some(2.0), true));
        assert!(alone["theirs"].is_null() && alone["ratio"].is_null());
        let beside = Row::beside("put", "per_s", Better::Higher, vec![2.0], "bare", vec![4.0]).json();
        assert_eq!(beside["peer"], "bare");
        assert_eq!(beside["ratio"].as_f64(), Some(0.5));
    }

    #[test]
    fn numbers_are_readable() {
        let cases = [(0.5, "0.500"), (73.26, "73.3"), (1_000.4, "1,000"), (1_234_567.0, "1,234,567")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(median(&[1.0, 4.0, 2.0, 3.0]), 2.5);
    }
}
