//! Parts of a scenario that run in a child process, so that each has its own peak of memory, and can be killed.
//!
//! The program runs itself as `dwell-bench part NAME PARAMETERS`. A part receives one JSON value, and reports with
//! lines of JSON on its standard output. When it ends, the last line is its result, which includes its peak of memory.
//! The parent holds its standard input open, so that a part exits when its scenario is gone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::Value;

use crate::Result;
use crate::resources::peak_rss_bytes;

/// A part, which is looked up by its name.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Value) -> Result<Value>,
}

/// The field of a result with the part's peak of memory.
pub(crate) const PEAK_RSS: &str = "rss_bytes";

/// Runs a part in this process.
pub(crate) fn run(part: &Part, parameters: &str) -> Result<()> {
    thread::spawn(|| {
        let mut nothing = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut nothing);
        std::process::exit(3);
    });
    let mut result = (part.run)(&serde_json::from_str(parameters)?)?;
    result[PEAK_RSS] = peak_rss_bytes()?.into();
    say(&result)
}

/// Prints a line for the parent.
pub(crate) fn say(value: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}

/// A running part.
#[derive(Debug)]
pub(crate) struct Running {
    name: &'static str,
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(part: &Part, parameters: &Value) -> Result<Running> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("part").arg(part.name).arg(parameters.to_string());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(process.stdout.take().expect("it was asked for"));
        Ok(Running { name: part.name, process, said })
    }

    /// Reads its next line; `None` at the end of its output.
    pub(crate) fn hear(&mut self) -> Result<Option<Value>> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(if line.is_empty() { None } else { Some(serde_json::from_str(&line)?) })
    }

    /// Its result.
    pub(crate) fn finish(mut self) -> Result<Value> {
        let mut result = None;
        while let Some(said) = self.hear()? {
            result = Some(said);
        }
        let status = self.process.wait()?;
        let result = result.filter(|_| status.success());
        result.ok_or_else(|| format!("the part {} failed: {status}", self.name).into())
    }

    /// Kills it, like `kill -9`.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a part in a child process to completion.
pub(crate) fn ask(part: &Part, parameters: &Value) -> Result<Value> {
    Running::start(part, parameters)?.finish()
}

/// A number from the parameters or results.
pub(crate) fn number(value: &Value, field: &str) -> Result<f64> {
    value[field].as_f64().ok_or_else(|| format!("`{field}` is missing in {value}").into())
}

/// A whole number from the parameters or results.
pub(crate) fn count(value: &Value, field: &str) -> Result<u64> {
    value[field].as_u64().ok_or_else(|| format!("`{field}` is missing in {value}").into())
}

/// A text from the parameters or results.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str> {
    value[field].as_str().ok_or_else(|| format!("`{field}` is missing in {value}").into())
}
