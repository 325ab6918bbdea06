//! Appends by io_uring: a write and an fdatasync that follows it, linked, in one call to the system.

use std::os::fd::AsRawFd as _;
use std::path::Path;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode};

use super::Append;
use super::file::{Ready, make};
use crate::Result;

/// Through the page cache, into a file that was written before.
pub(super) fn buffered(path: &Path) -> Result<Append> {
    let file = make(path, Ready::Written)?;
    let mut ring = IoUring::new(2)?;
    let mut end = 0;
    Ok(Box::new(move |chunk| {
        let descriptor = Fd(file.as_raw_fd());
        let len = u32::try_from(chunk.len())?;
        let write = opcode::Write::new(descriptor, chunk.as_ptr(), len).offset(end).build();
        let sync = opcode::Fsync::new(descriptor).flags(FsyncFlags::DATASYNC).build();
        submit(&mut ring, &[write.flags(Flags::IO_LINK).user_data(u64::from(len)), sync])?;
        end += u64::from(len);
        Ok(())
    }))
}

/// Submits `entries` and waits until all are done. What each should answer is its user data.
fn submit(ring: &mut IoUring, entries: &[Entry; 2]) -> Result<()> {
    #[expect(unsafe_code, reason = "the kernel reads memory that the entries name")]
    // SAFETY: the caller has borrowed the file and the chunk that the entries name until this returns, and it returns
    // only when both are done: the ring holds nothing else, and a completion is awaited for each entry.
    unsafe {
        ring.submission().push_multiple(entries)?;
    }
    let mut done = 0;
    let mut failed = None;
    while done < entries.len() {
        match ring.submit_and_wait(entries.len() - done) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                eprintln!("dwell-bench: io_uring: {error}");
                // The kernel may still read what the entries name.
                std::process::abort();
            }
            _ => {}
        }
        for completion in ring.completion() {
            done += 1;
            if i64::from(completion.result()) != completion.user_data() as i64 {
                failed = Some(completion.result());
            }
        }
    }
    match failed {
        Some(result) => Err(format!("io_uring answered {result}").into()),
        None => Ok(()),
    }
}
