//! Putting messages.

use dwell_store::Put;
use dwell_wire::{Operation, Path, PutItem};

use crate::answers::Answer;
use crate::transport::{Call, Payload};
use crate::{Client, Error, PutAnswer, Result};

/// One request carries at most so many items.
const CHUNK_ITEMS: usize = 1_000;
/// One request carries at most so many bytes, but always one item.
const CHUNK_BYTES: usize = 1024 * 1024;

impl Client {
    /// Puts messages, each of which is answered by itself, in order. A put without a token is given one, so
    /// that it can be repeated.
    ///
    /// # Errors
    /// Per item. Where a whole request failed, each of its items fails with the request's error.
    pub fn put(&self, puts: &[Put]) -> Vec<Result<PutAnswer>> {
        let mut answers = Vec::with_capacity(puts.len());
        let mut chunk = Vec::new();
        let mut items = 0;
        for put in puts {
            let mut item = PutItem::from(put);
            item.token.get_or_insert_with(|| format!("once-{}", uuid::Uuid::new_v4()).into());
            serde_json::to_writer(&mut chunk, &item).expect("our own types are JSON");
            chunk.push(b'\n');
            items += 1;
            if items == CHUNK_ITEMS || chunk.len() >= CHUNK_BYTES {
                answers.extend(self.put_chunk(std::mem::take(&mut chunk), std::mem::take(&mut items)));
            }
        }
        if items > 0 {
            answers.extend(self.put_chunk(chunk, items));
        }
        answers
    }

    /// Puts one message. See [`Client::put`].
    ///
    /// # Errors
    /// The item's.
    pub fn put_one(&self, put: Put) -> Result<PutAnswer> {
        self.put(&[put]).pop().expect("each item is answered")
    }

    fn put_chunk(&self, lines: Vec<u8>, items: usize) -> Vec<Result<PutAnswer>> {
        match self.put_lines(lines, items) {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); items],
        }
    }

    /// Puts items that are written already: `items` lines of JSON as `POST /v1/messages:batch` takes them,
    /// **each with a token**, at most some thousand of them.
    ///
    /// # Errors
    /// If the request as a whole failed. Then each item may or may not have been put, unless the error is
    /// [`Error::Unreachable`] or a refusal; repeating them is harmless.
    pub fn put_lines(&self, lines: Vec<u8>, items: usize) -> Result<Vec<Result<PutAnswer>>> {
        let path = Path::of(Operation::PutManyAnywhere, &[]);
        let call = Call::change(path).harmless().payload(Payload::Lines(lines));
        let bytes = self.send_for_bytes(&call)?;
        let answers = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| match serde_json::from_slice::<Answer<PutAnswer>>(line) {
                Ok(answer) => Ok(Answer::into(answer)),
                Err(error) => Err(self.bad_answer(&error.to_string())),
            })
            .collect::<Result<Vec<_>>>()?;
        if answers.len() == items {
            Ok(answers)
        } else {
            let reason = format!("{} answers came to {items} items", answers.len());
            Err(Error::OutcomeUnknown { reason: reason.into() })
        }
    }
}
