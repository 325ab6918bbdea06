//! What all fuzzers have in common: memory that is bounded by the length of the input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a run may hold at once: so many bytes, which buffers of fixed sizes need,
const FIXED: usize = 32 * 1024 * 1024;
/// and so many for each byte of its input.
const PER_BYTE: usize = 256;

/// Runs `entry` on `data`.
///
/// # Panics
/// If it held more memory at once than an input of this length may cost; and as `entry` does.
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

/// The system's allocator, counted.
struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: every call is passed on to the system's allocator as it is; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same here.
        unsafe { System.dealloc(pointer, layout) }
    }
}
