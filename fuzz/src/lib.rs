//! Shared by all fuzzers: memory use is bounded by the length of the input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The maximum memory of a run in bytes: a constant part, for buffers of fixed sizes,
const FIXED: usize = 32 * 1024 * 1024;
/// and a part per byte of its input.
const PER_BYTE: usize = 256;

/// Runs `entry` on `data`.
///
/// # Panics
/// If it held more memory at a time than an input of this length may use; and where `entry` does.
pub fn bounded(data: &[u8], entry: impl FnOnce(&[u8])) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    entry(data);
    let held = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let most = FIXED + PER_BYTE * data.len();
    assert!(held <= most, "an input of {} bytes cost {held} bytes of memory", data.len());
}

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of the bytes allocated.
struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: every call is passed unchanged to the system's allocator; counting does not access the memory.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`, which is the same here.
        unsafe { System.dealloc(pointer, layout) }
    }
}
