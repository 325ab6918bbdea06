//! The machine that the results were measured on.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns one line: processors, memory, kernel, file system, commit.
pub(crate) fn describe(dir: &Path) -> String {
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory_kib = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok())
        .unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let file_system = file_system(dir).unwrap_or_else(|| "unknown file system".to_owned());
    format!(
        "{processors} x {model}, {:.0} GiB, {} {}, {file_system}, commit {}",
        memory_kib as f64 / (1 << 20) as f64,
        std::env::consts::OS,
        kernel.trim(),
        commit().unwrap_or_else(|| "unknown".to_owned()),
    )
}

/// The first value of `name` in a file of `name : value` lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The type of the file system of `dir`: that of the longest mount point above it.
fn file_system(dir: &Path) -> Option<String> {
    let dir = dir.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let above = mounts.filter(|(point, _)| dir.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned())
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        // The repository of these sources, whatever the current directory is.
        let repository = ["-C", env!("CARGO_MANIFEST_DIR")];
        let output = Command::new("git")
            .args(repository)
            .args(arguments)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}
