//! Redisson itself: a Java program in `interop/redisson` with release 4.7.0, driven by lines of text.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Result;

/// A running Java process, which is stopped on drop.
pub(crate) struct Redisson {
    process: Child,
    line: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Redisson {
    /// Builds the Java program if it is not built yet, and starts it.
    pub(crate) fn start() -> Result<Redisson> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../interop/redisson");
        let release = folder.join("4.7/target");
        let class = release.join("classes/dwell/interop/Bench.class");
        let source = folder.join("src/dwell/interop/Bench.java");
        if changed(&class).is_none() || changed(&class) < changed(&source) {
            let built = Command::new("mvn")
                .args(["-q", "-B", "-pl", "4.7", "package", "-f"])
                .arg(&folder)
                .stdout(Stdio::null())
                .status();
            let built = built.map_err(|error| format!("mvn: {error}"))?;
            if !built.success() {
                return Err("mvn could not build interop/redisson".into());
            }
        }
        let path = format!("{}:{}/lib/*", release.join("classes").display(), release.display());
        let mut process = Command::new("java")
            .args(["-Xms1g", "-Xmx1g", "-cp", &path, "dwell.interop.Bench"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("java: {error}"))?;
        let line = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().ok_or("java has no standard output")?);
        Ok(Redisson { process, line, answers })
    }

    /// Makes `count` offers, `together` at a time. Returns the number per second.
    pub(crate) fn offer(&mut self, port: u16, queue: &str, count: u64, together: usize) -> Result<f64> {
        self.ask(&format!("offer redis://127.0.0.1:{port} {queue} {count} {together}"), count)
    }

    /// Moves and takes `count` due elements. Returns the number per second.
    pub(crate) fn take(&mut self, port: u16, queue: &str, count: u64) -> Result<f64> {
        self.ask(&format!("take redis://127.0.0.1:{port} {queue} {count}"), count)
    }

    fn ask(&mut self, work: &str, count: u64) -> Result<f64> {
        let line = self.line.as_mut().ok_or("java has no standard input")?;
        writeln!(line, "{work}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let nanos: f64 = answer.trim().parse().map_err(|_| format!("java ended during: {work}"))?;
        Ok(count as f64 * 1e9 / nanos)
    }
}

fn changed(file: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

impl Drop for Redisson {
    fn drop(&mut self) {
        // It exits when its input ends; its last reply was read.
        self.line.take();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
