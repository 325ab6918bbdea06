//! The trace: all events of a run, in order. Two runs of a seed have the same trace.

use std::fmt::Arguments;

/// The trace; see the [module](self).
#[derive(Debug)]
pub(super) struct Trace {
    /// FNV-1a (Fowler, Noll, Vo) over all lines. It only has to differ when lines differ.
    hash: u64,
    is_told: bool,
}

impl Trace {
    /// An empty trace; if `is_told`, it is printed as it grows.
    pub(super) fn new(is_told: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, is_told }
    }

    /// Whether it is printed.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Adds an event.
    pub(super) fn add(&mut self, line: Arguments<'_>) {
        let line = line.to_string();
        if self.is_told {
            println!("{line}");
        }
        for byte in line.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash of all lines.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }
}
