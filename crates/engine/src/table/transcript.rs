//! All queries of a table, for tests that compare two of them.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::Timestamp;

use super::block::TableEntry;
use super::reader::Table;
use crate::sealed::{ReadError, Result};

/// The answer of the file to each query; `None` for an error. Of a long one, its first entries.
///
/// # Panics
/// If an error is other than damage or an unknown version: the disk under it must not fail.
pub(crate) fn transcript(file: &Arc<Table>) -> Vec<Option<String>> {
    let mut answers = vec![
        Some(format!("{} {:?} {:?}", file.len(), file.due_range(), file.number_range())),
        Some(format!("{:?}", file.sections())),
        answer(file.expiries(None, Timestamp::MAX, usize::MAX)),
        answer(file.scan(0..file.len()).map(|read| read.map(short)).collect::<Result<Vec<_>>>()),
    ];
    for ordinal in 0..file.len().min(300) {
        let section = &file.sections()[file.section_of(ordinal)];
        let found = file.get(ordinal);
        if let Ok((found, _)) = &found {
            let key = (found.entry.standing.due, found.entry.id.as_bits());
            answers.push(answer(file.lower_bound(section, key)));
            answers.push(answer(file.lower_bound(section, (key.0, key.1 + 1))));
        } else {
            answers.extend([None, None]);
        }
        answers.push(answer(found.map(short)));
        let mut read = Vec::new();
        let end = file.block_end(ordinal).min(ordinal + 3);
        answers.push(answer(file.read(ordinal..end, &mut read).map(|()| read)));
        let mut read = Vec::new();
        answers
            .push(answer(file.read_at(&[0, ordinal][usize::from(ordinal == 0)..], &mut read).map(|()| read)));
    }
    answers
}

/// Bodies may be large.
fn short((found, body): (TableEntry, Bytes)) -> (TableEntry, usize, u32) {
    (found, body.len(), crc32fast::hash(&body))
}

fn answer<T: Debug>(given: Result<T>) -> Option<String> {
    match given {
        Ok(answer) => Some(format!("{answer:?}")),
        Err(ReadError::Io { file, source }) => panic!("{}: {source}", file.display()),
        Err(_) => None,
    }
}

/// Checks that every answer of a file that may be damaged is that of the intact one.
///
/// # Panics
/// If one is wrong.
pub(crate) fn assert_no_lies(damaged: &[Option<String>], whole: &[Option<String>], how: &dyn Debug) {
    assert!(!whole.is_empty(), "{how:?}: the whole one was asked");
    for (given, right) in damaged.iter().zip(whole) {
        assert!(given.is_none() || given == right, "{how:?}: {given:?} instead of {right:?}");
    }
}
