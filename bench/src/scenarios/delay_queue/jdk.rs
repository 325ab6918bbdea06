//! The JDK's side: compiles the Java program with the machine's JDK and runs it, a process per measurement.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::run::Run;

const SOURCE: &str = include_str!("../../../peers/DelayQueuePeer.java");

/// The compiled program.
pub(super) struct Jdk {
    classes: PathBuf,
}

impl Jdk {
    pub(super) fn compile(run: &mut Run) -> Result<Jdk> {
        let classes = run.empty_folder("jdk")?;
        let source = classes.join("DelayQueuePeer.java");
        std::fs::write(&source, SOURCE)?;
        let mut javac = Command::new("javac");
        output(javac.arg("-d").arg(&classes).arg(&source))?;
        let version = output(Command::new("java").arg("--version"))?;
        run.note(format!("jdk: {}, -Xms4g -Xmx4g", version.lines().next().unwrap_or_default()));
        Ok(Jdk { classes })
    }

    /// Runs one work. Returns the numbers that it prints.
    pub(super) fn measure(&self, work: &str, arguments: &[u64]) -> Result<Vec<f64>> {
        let mut java = self.java(&self.classes);
        java.arg(work).args(arguments.iter().map(u64::to_string));
        let line = output(&mut java)?;
        Ok(line.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>()?)
    }

    fn java(&self, classes: &Path) -> Command {
        let mut java = Command::new("java");
        java.args(["-Xms4g", "-Xmx4g", "-cp"]).arg(classes).arg("DelayQueuePeer");
        java
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
