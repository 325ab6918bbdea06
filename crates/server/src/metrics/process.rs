//! The operating system's figures of this process. Files of `/proc` are served from memory.

use std::fs;

/// Figures of the process; `None` where the system does not report one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// Resident memory in bytes.
    pub(crate) resident_bytes: Option<u64>,
    /// Open files and sockets.
    pub(crate) open_files: Option<u64>,
    /// The limit on open files.
    pub(crate) max_files: Option<u64>,
}

/// Reads the figures now.
pub(crate) fn read() -> Process {
    Process {
        resident_bytes: resident(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
        open_files: fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64),
        max_files: max_files(&fs::read_to_string("/proc/self/limits").unwrap_or_default()),
    }
}

/// proc_pid_status(5): `VmRSS:   5124 kB`, with a tab after the colon.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// proc_pid_limits(5): name, soft limit, hard limit, unit.
fn max_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_system_writes() {
        assert_eq!(resident("Name:\tdwell\nVmRSS:\t    5124 kB\n"), Some(5124 * 1024));
        assert_eq!(resident(""), None);
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            20000                20000                files     \n";
        assert_eq!(max_files(limits), Some(20_000));
        assert_eq!(max_files("Max open files   unlimited unlimited files"), None);
    }
}
