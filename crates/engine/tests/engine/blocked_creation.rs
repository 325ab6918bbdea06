//! A disk on which files cannot be created while a door is shut, or are refused.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use dwell_engine::disk::{Disk, DiskFile, DiskLock, MemoryDisk};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    /// A thread that creates a file waits.
    Shut,
    /// One thread passes, and shuts the door.
    OnceOpen,
    /// A thread that creates a file gets an error.
    Barred,
    /// Once, a thread that creates a file panics, and leaves the file that it has begun.
    Trapped,
}

#[derive(Clone, Debug)]
pub(crate) struct DoorDisk {
    disk: MemoryDisk,
    door: Arc<(Mutex<Door>, Condvar)>,
}

impl DoorDisk {
    pub(crate) fn new(disk: MemoryDisk) -> DoorDisk {
        let door = Arc::new((Mutex::new(Door::Open), Condvar::new()));
        DoorDisk { disk, door }
    }

    pub(crate) fn state(&self) -> Door {
        *self.door.0.lock().unwrap()
    }

    pub(crate) fn set(&self, door: Door) {
        *self.door.0.lock().unwrap() = door;
        self.door.1.notify_all();
    }

    fn pass(&self, path: &Path) -> io::Result<()> {
        let door = self.door.0.lock().unwrap();
        let mut door = self.door.1.wait_while(door, |door| *door == Door::Shut).unwrap();
        if *door == Door::OnceOpen {
            *door = Door::Shut;
        }
        if *door == Door::Trapped {
            *door = Door::Open;
            drop(door);
            self.disk.create(path).unwrap();
            panic!("the floor gives way");
        }
        if *door == Door::Barred { Err(io::Error::other("the door is barred")) } else { Ok(()) }
    }
}

impl Disk for DoorDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("table-")) {
            self.pass(path)?;
        }
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.disk.lock(path)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.disk.free_space(dir)
    }
}
