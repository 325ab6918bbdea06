//! A stored run.

use serde_json::Value;

use crate::Result;
use crate::report::number;

/// The content of a run's line of JSON.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) scenario: String,
    /// Processors, memory, kernel, file system.
    pub(crate) machine: String,
    pub(crate) commit: String,
    /// The command that repeats the run.
    pub(crate) command: String,
    pub(crate) rounds: u64,
    pub(crate) notes: Vec<String>,
    pub(crate) rows: Vec<ResultRow>,
    pub(crate) json: Value,
}

/// A row: what was measured, and the cells for our number, the peer's name and number, and the ratio.
#[derive(Debug)]
pub(crate) struct ResultRow {
    pub(crate) work: String,
    pub(crate) metric: String,
    pub(crate) ours: String,
    pub(crate) peer: Option<String>,
    pub(crate) theirs: String,
    pub(crate) ratio: String,
}

impl Measured {
    /// Parses the output of a run, which ends with its line of JSON.
    pub(crate) fn last_line_of(output: &str) -> Result<Measured> {
        let last = output.lines().map(str::trim).rfind(|line| !line.is_empty());
        let run = Measured::parse(last.ok_or("it is empty")?)
            .map_err(|error| format!("its last line is no result, was it run with --json? {error}"))?;
        match run.json["only"].as_str() {
            Some(only) => Err(format!("it has only the rows of '{only}': run the whole scenario").into()),
            None => Ok(run),
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Measured> {
        let json: Value = serde_json::from_str(text)?;
        let words = |value: &Value, field: &str| {
            let text = value[field].as_str().map(str::to_owned);
            text.ok_or_else(|| format!("`{field}` is missing"))
        };
        let scenario = words(&json, "scenario")?;
        let described = words(&json, "machine")?;
        let (machine, commit) = described.rsplit_once(", commit ").ok_or("the machine names no commit")?;
        let rounds = json["rounds"].as_u64().ok_or("`rounds` is missing")?;
        let mut command = format!("cargo run --release -p dwell-bench -- {scenario} --json");
        match json["divisor"].as_u64() {
            _ if json["quick"] == true => command.push_str(" --quick"),
            None | Some(1) => {}
            Some(divisor) => command.push_str(&format!(" --divide {divisor}")),
        }
        if rounds != 3 {
            command.push_str(&format!(" --rounds {rounds}"));
        }
        let list = |field: &str| json[field].as_array().ok_or_else(|| format!("`{field}` is missing"));
        let notes = list("notes")?.iter().filter_map(|note| note.as_str().map(str::to_owned)).collect();
        let cell = |row: &Value, field: &str| row[field].as_f64().map(number).unwrap_or_default();
        let rows = list("rows")?
            .iter()
            .map(|row| {
                Ok(ResultRow {
                    work: words(row, "work")?,
                    metric: words(row, "metric")?,
                    ours: cell(row, "ours"),
                    peer: row["peer"].as_str().map(str::to_owned),
                    theirs: cell(row, "theirs"),
                    ratio: row["ratio"].as_f64().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
                })
            })
            .collect::<Result<_>>()?;
        let (machine, commit) = (machine.to_owned(), commit.to_owned());
        Ok(Measured { scenario, machine, commit, command, rounds, notes, rows, json })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Better, Report, Row};

    #[test]
    fn what_a_run_prints_is_read_again() {
        let report = Report {
            scenario: "engine-put".to_owned(),
            machine: "2 x CPU, 24 GiB, linux 6, ext4, commit 0123456789 with changes".to_owned(),
            divisor: 10,
            rounds: 1,
            only: None,
            notes: vec!["a note".to_owned()],
            rows: vec![
                Row::beside("put", "per_s", Better::Higher, vec![4_000.0], "fjall", vec![1_000.0]),
                Row::alone("put", "p99_ms", vec![0.5]),
            ],
        };
        let output = format!("{report}{}\n", report.json());
        let run = Measured::last_line_of(&output).unwrap();
        assert_eq!(
            (run.machine.as_str(), run.commit.as_str()),
            ("2 x CPU, 24 GiB, linux 6, ext4", "0123456789 with changes")
        );
        assert_eq!(run.command, "cargo run --release -p dwell-bench -- engine-put --json --quick --rounds 1");
        let [first, second] = run.rows.as_slice() else { panic!("{run:?}") };
        let cells = [&first.work, &first.metric, &first.ours, &first.theirs, &first.ratio];
        assert_eq!(cells, ["put", "per_s", "4,000", "1,000", "4.00"]);
        assert_eq!((first.peer.as_deref(), second.peer.as_deref()), (Some("fjall"), None));
        assert_eq!((second.ours.as_str(), second.theirs.as_str(), second.ratio.as_str()), ("0.500", "", ""));

        let part = Report { only: Some("put".to_owned()), ..report };
        assert!(Measured::last_line_of(&part.json().to_string()).is_err(), "a part is kept as the whole");
    }

    #[test]
    fn a_file_that_does_not_end_with_a_result_is_refused() {
        for text in ["", "table\n", "{}", r#"{"scenario":"x","machine":"nowhere","rounds":1,"rows":[]}"#] {
            assert!(Measured::last_line_of(text).is_err(), "{text}");
        }
    }
}
