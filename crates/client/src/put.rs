//! Putting messages: lines of JSON, each with an idempotency key that makes it harmless to send twice.

use bytes::Bytes;
use dwell_store::{Put, PutAnswer, Result};
use dwell_wire::{Operation, Path, PutItem};

use crate::Client;
use crate::call::{CHUNK_BYTES, CHUNK_ITEMS, Call, Each, vec_of};
use crate::client::Inner;

impl Client {
    /// Puts items that are already serialized: `items` lines of JSON as `POST /v1/messages:batch` takes them, **each with
    /// an idempotency key**, at most a few thousand of them.
    ///
    /// # Errors
    /// If the request as a whole failed. Then each item may or may not have been put, unless the error is
    /// [`Error::Unreachable`](dwell_store::Error::Unreachable) or a refusal; repeating them is harmless.
    pub async fn put_lines(&self, lines: Vec<u8>, items: usize) -> Result<Vec<Result<PutAnswer>>> {
        self.inner.reactor.enter(self.inner.put_lines(lines.into(), items)).await
    }
}

impl Inner {
    pub(crate) async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        // The server reads lines as a stream whose length it does not know.
        if puts.len() > 1
            && let Err(error) = self.check_batch(puts.len()).await
        {
            return vec_of(puts.len(), &error);
        }
        let mut answers = Vec::with_capacity(puts.len());
        let (mut lines, mut count) = (Vec::new(), 0);
        for (place, put) in puts.iter().enumerate() {
            let mut item = PutItem::from(put);
            item.idempotency_key.get_or_insert_with(|| format!("once-{}", uuid::Uuid::new_v4()).into());
            serde_json::to_writer(&mut lines, &item).expect("our own types are JSON");
            lines.push(b'\n');
            count += 1;
            if count == CHUNK_ITEMS || lines.len() >= CHUNK_BYTES || place + 1 == puts.len() {
                let items = std::mem::take(&mut count);
                match self.put_lines(std::mem::take(&mut lines).into(), items).await {
                    Ok(some) => answers.extend(some),
                    Err(error) => answers.extend(vec_of(items, &error)),
                }
            }
        }
        answers
    }

    async fn put_lines(&self, lines: Bytes, items: usize) -> Result<Vec<Result<PutAnswer>>> {
        let call = Call::change(Path::of(Operation::PutManyAnywhere, &[])).harmless().lines(lines);
        let bytes = self.bytes(call).await?;
        let mut answers = bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| match serde_json::from_slice::<Each<dwell_wire::PutAnswer>>(line) {
                Ok(each) => Ok(self
                    .done(each)
                    .and_then(|answer| PutAnswer::try_from(answer).map_err(|reason| self.no_value(reason)))),
                Err(error) => Err(self.unreadable(false, &error)),
            })
            .collect::<Result<Vec<_>>>()?;
        // A server that ends a stream early, since it stops, say, refuses the next item, and has done none after it.
        if answers.len() < items
            && let Some(Err(refused)) = answers.last()
        {
            let rest = vec_of(items - answers.len(), &refused.clone());
            answers.extend(rest);
        }
        if answers.len() == items { Ok(answers) } else { Err(self.miscounted(false, answers.len(), items)) }
    }
}
