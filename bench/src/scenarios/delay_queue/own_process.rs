//! A measurement in a process of its own, which is this program again with [`ASK`] set: no measurement then runs on memory
//! that another one has left. The JDK's side is measured so too.

use std::env;
use std::process::Command;

use crate::Result;
use crate::run::Run;

/// Says what the process is to measure: a work and its arguments.
const ASK: &str = "DWELL_BENCH_ASK";

/// What this process was asked for.
pub(super) fn asked() -> Option<String> {
    env::var(ASK).ok()
}

/// Prints the numbers that were asked for, as rows.
pub(super) fn answer(run: &mut Run, numbers: Vec<f64>) {
    numbers.into_iter().for_each(|number| run.alone("answer", "number", vec![number]));
}

/// The numbers that another process measures.
pub(super) fn ask(work: &str) -> Result<Vec<f64>> {
    let mut again = Command::new(env::current_exe()?);
    again.args(["delay-queue", "--json", "--rounds", "1", "--dir"]).arg(env::temp_dir()).env(ASK, work);
    let output = again.output()?;
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let report: serde_json::Value = serde_json::from_str(line)?;
    let rows = report["rows"].as_array().ok_or("the process answers with rows")?;
    let numbers = rows.iter().map(|row| row["ours"].as_f64());
    Ok(numbers.collect::<Option<_>>().ok_or("the process answers with numbers")?)
}
