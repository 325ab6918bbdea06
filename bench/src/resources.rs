//! The resources that a run uses: peak of memory, and disk space.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::Result;
use crate::stopwatch::Stopwatch;

/// The peak of this process's resident memory in bytes, including the pages of its program.
pub(crate) fn peak_rss_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("the kernel tells no peak of memory")?;
    Ok(kib.trim().parse::<u64>()? * 1_024)
}

/// The disk space of a folder's files in bytes, including preallocated space.
pub(crate) fn space_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        match entry?.metadata() {
            // Blocks have 512 bytes, whatever the file system's block size.
            Ok(file) => bytes += file.blocks() * 512,
            // An active engine removes files.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

/// Touches `bytes` bytes of memory and returns them to the allocator, which keeps most of them for some seconds.
///
/// Returns the time per page of 4 KiB in microseconds.
pub(crate) fn touch_memory(bytes: usize) -> f64 {
    const PIECE: usize = 128 * 1024;
    const PAGE: usize = 4 * 1024;
    let watch = Stopwatch::start();
    let pieces: Vec<Vec<u8>> = (0..bytes.div_ceil(PIECE)).map(|_| vec![1; PIECE]).collect();
    let took = watch.elapsed();
    let pages = black_box(pieces).len() * PIECE / PAGE;
    took.as_secs_f64() * 1e6 / pages.max(1) as f64
}

/// Refuses to start a run that would fill the disk.
pub(crate) fn need_disk(folder: &Path, bytes: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(folder)?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
    Err(format!(
        "it needs up to {:.1} GiB of disk, and {:.1} GiB are free; see --quick and --dir",
        gib(bytes),
        gib(free)
    )
    .into())
}
