//! The [`Disk`] calls of the disk in memory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::change::{Content, DiskRng, FileChange, NameOp};
use super::{CallKind, DiskState, Failure, MemoryDisk, broken};
use crate::disk::{Disk, DiskDir, DiskFile, DiskLock};

impl Disk for MemoryDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, CallKind::Look)?;
        if state.names.contains_key(dir) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        state.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, CallKind::Look)?;
        if state.names.contains_key(dir) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        if !state.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = state.names.keys().filter(|path| path.parent() == Some(dir));
        let dirs = state.dirs.iter().filter(|path| path.parent() == Some(dir));
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut names: Vec<String> = files.chain(dirs).filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let life = state.life;
        let dies = state.enter(life, CallKind::Create)?;
        state.has_dir(path)?;
        let file = match state.names.get(path).copied() {
            Some(file) => {
                state.change_file(file, FileChange::Size(0));
                file
            }
            None => {
                let file = state.next_file;
                state.next_file += 1;
                state.files.insert(file, Content::default());
                state.change_names(None, Some((path.to_owned(), file)));
                file
            }
        };
        if dies {
            return Err(broken("the power failed"));
        }
        Ok(Arc::new(MemoryFile { disk: self.clone(), file, life }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, CallKind::Open)?;
        let file = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), file, life }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        let dies = state.enter(life, CallKind::Other)?;
        let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.change_names(Some(from.to_owned()), Some((to.to_owned(), file)));
        if dies { Err(broken("the power failed")) } else { Ok(()) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        let dies = state.enter(life, CallKind::Remove)?;
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change_names(Some(path.to_owned()), None);
        if dies { Err(broken("the power failed")) } else { Ok(()) }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, CallKind::OpenDir)?;
        state.sync_dir(life, dir)
    }

    fn open_dir(&self, dir: &Path) -> io::Result<Arc<dyn DiskDir>> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, CallKind::OpenDir)?;
        Ok(Arc::new(MemoryDir { disk: self.clone(), dir: dir.to_owned(), life }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, CallKind::Look)?;
        state.has_dir(path)?;
        if !state.locks.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemoryLock { disk: self.clone(), path: path.to_owned(), life })))
    }

    fn free_space(&self, _: &Path) -> io::Result<u64> {
        let mut state = self.state();
        let life = state.life;
        state.enter(life, CallKind::Look)?;
        Ok(state.capacity.map_or(u64::MAX / 2, |capacity| capacity.saturating_sub(state.used())))
    }
}

impl DiskState {
    fn sync_dir(&mut self, life: u64, dir: &Path) -> io::Result<()> {
        if self.enter(life, CallKind::SyncDir)? {
            return Err(broken("the power failed"));
        }
        if self.syncs_lie {
            return Ok(());
        }
        let inside = |op: &NameOp| {
            let path = op.removed.as_ref().or(op.added.as_ref().map(|(path, _)| path));
            path.and_then(|path| path.parent()) == Some(dir)
        };
        let (synced, left) = std::mem::take(&mut self.name_ops).into_iter().partition(inside);
        self.name_ops = left;
        let synced: Vec<NameOp> = synced;
        for op in synced {
            op.apply(&mut self.durable_names);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryDir {
    disk: MemoryDisk,
    dir: PathBuf,
    life: u64,
}

impl DiskDir for MemoryDir {
    fn sync(&self) -> io::Result<()> {
        self.disk.state().sync_dir(self.life, &self.dir)
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    file: u64,
    life: u64,
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.enter(self.life, CallKind::Look)?;
        let seen = &state.content(self.file).seen;
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let part = seen.get(start..start + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        state.spoil(self.file, buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let dies = state.enter(self.life, CallKind::Write)?;
        let end = offset + bytes.len() as u64;
        let old = state.content(self.file).seen.len() as u64;
        let granted = state.grant(old, end.max(old));
        let written = end.min(granted).saturating_sub(offset) as usize;
        if written > 0 {
            state.change_file(self.file, FileChange::Write { offset, bytes: bytes[..written].to_vec() });
        }
        if dies {
            return Err(broken("the power failed"));
        }
        if written < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let dies = match state.meet(self.life, CallKind::Sync) {
            Ok(dies) => dies,
            Err(met) => {
                if let Failure::Loses(kept) = met.failure {
                    let content = state.content(self.file);
                    let lost = std::mem::take(&mut content.ops);
                    if let Some(mut chance) = kept.map(DiskRng) {
                        lost.iter().for_each(|op| op.what.apply_some(&mut content.durable, &mut chance));
                    }
                }
                return Err(met.into());
            }
        };
        if dies {
            return Err(broken("the power failed"));
        }
        if state.syncs_lie {
            return Ok(());
        }
        let content = state.content(self.file);
        for op in std::mem::take(&mut content.ops) {
            op.what.apply(&mut content.durable);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        state.enter(self.life, CallKind::Look)?;
        Ok(state.content(self.file).seen.len() as u64)
    }

    fn set_size(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let dies = state.enter(self.life, CallKind::Other)?;
        state.change_file(self.file, FileChange::Size(len));
        if dies { Err(broken("the power failed")) } else { Ok(()) }
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let dies = state.enter(self.life, CallKind::Other)?;
        let old = state.content(self.file).seen.len() as u64;
        if len > old && !state.sets_nothing_aside {
            let granted = state.grant(old, len);
            if granted < len {
                // As ext4 does: the room that there was stays reserved.
                state.change_file(self.file, FileChange::Size(granted));
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.change_file(self.file, FileChange::Size(len));
        }
        if dies { Err(broken("the power failed")) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct MemoryLock {
    disk: MemoryDisk,
    path: PathBuf,
    life: u64,
}

impl DiskLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}
