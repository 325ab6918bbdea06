//! The command line.

use std::path::PathBuf;

/// The output of `--help`.
pub(crate) const USAGE: &str = "\
usage: cargo run --release -p dwell-bench -- list
       cargo run --release -p dwell-bench -- SCENARIO [--quick | --divide N] [--json] [--only WORK] [--rounds N]
                                                      [--dir PATH]
       cargo run --release -p dwell-bench -- results [FILE ...]

  list         names the scenarios
  results      keeps the runs whose lines of JSON (--json) end the files, and writes RESULTS.md and the README's
               table anew from all that are kept
  --quick      a tenth of the work, and of memory limits
  --divide N   so much less work, and memory; --quick is --divide 10
  --json       one line of JSON last
  --only WORK  the rows whose work contains this, or is what follows a '='; nothing else is measured, as far as it can be
               measured alone
  --rounds N   how often each side runs, alternating; medians are reported (default 3)
  --dir PATH   where data is written; a folder of its own is made there and removed (default: the current folder)
";

/// The requested command.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    List,
    /// The files whose last line is a run.
    Results(Vec<PathBuf>),
    /// A part of a scenario, with its parameters. The program runs itself with this command.
    Part(String, String),
    Measure(Arguments),
}

/// The options of a scenario's run.
#[derive(Debug, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) scenario: String,
    /// Divides the amount of work, and of allowed memory, of the scenario; 1 for the full amount.
    pub(crate) divisor: u64,
    pub(crate) json: bool,
    /// Selects the rows whose work contains this text, or, after a `=`, equals it.
    pub(crate) only: Option<String>,
    pub(crate) rounds: usize,
    pub(crate) dir: PathBuf,
}

impl Arguments {
    pub(crate) fn parse(given: impl IntoIterator<Item = String>) -> Result<Command, String> {
        let mut given = given.into_iter();
        let mut scenario = None;
        let (mut divisor, mut json, mut rounds, mut dir) = (1, false, 3, PathBuf::from("."));
        let mut only = None;
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "-h" | "--help" => return Ok(Command::Help),
                "results" if scenario.is_none() => return Command::results(given),
                "part" if scenario.is_none() => return Command::part(given),
                "--quick" => divisor = 10,
                "--divide" => {
                    let value = given.next().ok_or("--divide needs a number")?;
                    divisor = value
                        .parse()
                        .ok()
                        .filter(|divisor| (1..=10_000).contains(divisor))
                        .ok_or_else(|| format!("--divide is a number from 1 to 10000, not '{value}'"))?;
                }
                "--json" => json = true,
                "--only" => only = Some(given.next().ok_or("--only needs a part of a row's work")?),
                "--rounds" => {
                    let value = given.next().ok_or("--rounds needs a number")?;
                    rounds = value
                        .parse()
                        .ok()
                        .filter(|rounds| (1..=100).contains(rounds))
                        .ok_or_else(|| format!("--rounds is a number from 1 to 100, not '{value}'"))?;
                }
                "--dir" => dir = given.next().ok_or("--dir needs a path")?.into(),
                option if option.starts_with('-') => return Err(format!("there is no option '{option}'")),
                _ if scenario.is_some() => {
                    return Err(format!("one scenario at a time, and '{argument}' is a second"));
                }
                _ => scenario = Some(argument),
            }
        }
        match scenario {
            None => Err("name a scenario, or `list`".to_owned()),
            Some(name) if name == "list" => Ok(Command::List),
            Some(scenario) => Ok(Command::Measure(Arguments { scenario, divisor, json, only, rounds, dir })),
        }
    }
}

impl Command {
    fn part(mut given: impl Iterator<Item = String>) -> Result<Command, String> {
        let (name, parameters) = (given.next(), given.next());
        let part = name.zip(parameters).ok_or("a part has a name and parameters")?;
        Ok(Command::Part(part.0, part.1))
    }

    fn results(files: impl Iterator<Item = String>) -> Result<Command, String> {
        let files: Vec<PathBuf> = files.map(PathBuf::from).collect();
        match files.iter().find(|file| file.to_string_lossy().starts_with('-')) {
            Some(option) => Err(format!("`results` has no option '{}'", option.display())),
            None => Ok(Command::Results(files)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_may_stand_anywhere() {
        let expected = Arguments {
            scenario: "engine-put".to_owned(),
            divisor: 10,
            json: true,
            only: Some("put".to_owned()),
            rounds: 5,
            dir: PathBuf::from("/data"),
        };
        let line = "--quick engine-put --rounds 5 --only put --dir /data --json";
        assert_eq!(parse(line), Ok(Command::Measure(expected)));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert_eq!(parse("results a b"), Ok(Command::Results(vec!["a".into(), "b".into()])));
        for line in [
            "",
            "a b",
            "results --quick",
            "a --rounds",
            "a --rounds 0",
            "a --rounds x",
            "a --dir",
            "a --only",
            "a --fast",
            "a --divide 0",
            "part a",
        ] {
            assert!(parse(line).is_err(), "accepted: '{line}'");
        }
    }
}
