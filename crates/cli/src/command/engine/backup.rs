//! `dwell engine backup`

use std::path::{Path, PathBuf};

use clap::Args;
use dwell_engine::disk::RealDisk;
use dwell_engine::{BackupReport, OpenError, offline};
use dwell_time::{Clock as _, SystemClock};
use serde::Serialize;

use super::bar::Bar;
use super::{Context, Outcome, bytes, check, lies_in, looked_at, seed};
use crate::command::serve::control::{self, ControlRequest};
use crate::exit::{Exit, Failure};
use crate::human::STRONG;

/// Copy a data directory, also while a server has it open
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell engine backup dwell-data /backup/dwell-2026-11-21
  dwell serve --data /backup/dwell-2026-11-21    a backup is served as it is

A server that has the directory open makes the copy itself, as its own user, and
goes on serving meanwhile: be that user, or root. All that was answered before
is in it. What was settled later comes again when the backup is served, which
says so once. Files that do not change any more are linked where both
directories are on one file system; against a disk that fails, name another
disk, or --copy.")]
pub(crate) struct Backup {
    /// The data directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The destination: an empty directory, or one that does not exist yet
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// Copy all files, link none
    #[arg(long)]
    copy: bool,
    /// Do not check the copy
    #[arg(long)]
    no_check: bool,
}

#[derive(Serialize)]
struct BackupJson<'a> {
    online: bool,
    linked: u64,
    copied: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<check::CheckJson<'a>>,
}

impl Backup {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if lies_in(&self.dest, &self.dir) {
            return Err(Failure::usage("the copy would lie in the directory itself: name another place"));
        }
        let (online, report) = self.write(context)?;
        let checked = match self.no_check {
            true => None,
            false => Some(check::checked(context, &self.dest)?),
        };
        let BackupReport { linked, copied, bytes } = report;
        let is_sound = checked.as_ref().is_none_or(|report| report.is_sound());
        let shown =
            BackupJson { online, linked, copied, bytes, check: checked.as_ref().map(check::CheckJson::from) };
        context.output.show(&shown, |out| {
            let how = if online { "by its server" } else { "while nobody had it open" };
            let dest = self.dest.display();
            writeln!(
                out,
                "{STRONG}{dest}{STRONG:#}: {bytes} bytes, {how}; {copied} files copied, {linked} linked"
            )?;
            checked.as_ref().map_or(Ok(()), |report| check::write(out, report))
        })?;
        Ok(if is_sound { Exit::Ok } else { Exit::Refused })
    }

    /// Makes the copy, and returns whether a server did.
    fn write(&self, context: &Context) -> Result<(bool, BackupReport), Failure> {
        let disk = looked_at();
        let total = bytes(&disk, &self.dir, |_| 1);
        let (watched, to) = (disk.clone(), self.dest.clone());
        let has_grown = move || bytes(&watched, &to, |_| 1);
        let _bar = Bar::over(total, context.output.has_progress(), has_grown);
        let now = SystemClock::new().now();
        match offline::backup(&disk, &self.dir, &RealDisk, &self.dest, now, seed()?, self.copy) {
            Ok(report) => Ok((false, report)),
            Err(OpenError::Locked { .. }) => {
                let to = absolute(&self.dest);
                let request = ControlRequest::Backup { to, copies: self.copy };
                Ok((true, control::ask(&self.dir, &request)?))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A server has another working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
