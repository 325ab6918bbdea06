//! Figures of the machine and the process for `stats`; empty or zero where the system does not report them.

use std::fmt;
use std::fs;

/// The machine's name.
pub(super) fn name() -> String {
    read("/proc/sys/kernel/hostname")
}

/// The version of the operating system.
pub(super) fn system_version() -> String {
    read("/proc/sys/kernel/version")
}

/// Files of `/proc` are served from memory.
fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\').collect()
}

/// Processor time, in the form of beanstalkd's `rusage` fields: seconds, a point and six digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTime {
    ticks: u64,
}

/// Linux counts processor time for user space in hundredths of a second (USER_HZ).
const TICKS_A_SECOND: u64 = 100;

impl fmt::Display for CpuTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.ticks % TICKS_A_SECOND * (1_000_000 / TICKS_A_SECOND);
        write!(f, "{}.{micros:06}", self.ticks / TICKS_A_SECOND)
    }
}

/// The process's time in user space and in the system.
pub(super) fn cpu_times() -> (CpuTime, CpuTime) {
    parse_stat(&fs::read_to_string("/proc/self/stat").unwrap_or_default())
}

/// proc_pid_stat(5): fields 14 and 15, of which the second field may hold spaces and parentheses.
fn parse_stat(text: &str) -> (CpuTime, CpuTime) {
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11);
    let mut next = || CpuTime { ticks: fields.next().and_then(|field| field.parse().ok()).unwrap_or(0) };
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_times_behind_any_name() {
        let text = "1 (a) b (c) S 0 1 1 0 -1 4194560 10 20 30 40 1234 5 0 0 20 0 1 0 1";
        let (user, system) = parse_stat(text);
        assert_eq!((user.to_string().as_str(), system.to_string().as_str()), ("12.340000", "0.050000"));
        assert_eq!(parse_stat("").0.to_string(), "0.000000");
    }
}
