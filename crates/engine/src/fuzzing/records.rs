//! Records: whatever can be decoded can be encoded, and is the same when it is decoded again.

use super::input::Input;
use crate::journal::format::SegmentName;
use crate::journal::record::{BatchContext, Decoder, Encoder, Fact};

/// The prelude is shard (2 bytes), incarnation (4) and the batch's wall clock (8); then come the records.
pub fn records(data: &[u8]) {
    let mut input = Input::new(data);
    let context = BatchContext {
        shard: input.u16() & dwell_model::MessageId::MAX_SHARD,
        incarnation: input.u32(),
        now: input.instant(),
        salt: SegmentName { directory: 1, shard: 2, segment: 3 }.salt(),
    };
    let bytes = input.rest();
    let facts = read(bytes, context);
    let written = write(&facts, bytes, context);
    let again = read(&written, context);
    assert_eq!(facts.len(), again.len(), "what was written is read");
    for (fact, again) in facts.iter().zip(&again) {
        match (fact, again) {
            (
                Fact::Put { record, body_at, body_len },
                Fact::Put { record: record_again, body_at: at_again, body_len: len_again },
            ) => {
                assert_eq!(record, record_again);
                assert_eq!(body(bytes, *body_at, *body_len), body(&written, *at_again, *len_again));
            }
            (fact, again) => assert_eq!(fact, again),
        }
    }
    assert_eq!(write(&again, &written, context), written, "a record has one form");
}

fn body(bytes: &[u8], at: u32, len: u32) -> &[u8] {
    &bytes[at as usize + 4..][..len as usize]
}

/// The records up to the end, or to the first that cannot be decoded.
fn read(bytes: &[u8], context: BatchContext) -> Vec<Fact> {
    let mut decoder = Decoder::new(bytes, context);
    let mut facts = Vec::new();
    while let Ok(Some(fact)) = decoder.next() {
        facts.push(fact);
    }
    facts
}

fn write(facts: &[Fact], bytes: &[u8], context: BatchContext) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.begin_batch();
    let mut out = Vec::new();
    for fact in facts {
        match fact {
            Fact::Put { record, body_at, body_len } => {
                encoder.put(&mut out, context, record, body(bytes, *body_at, *body_len));
            }
            Fact::Record(record) => encoder.record(&mut out, context, record),
            Fact::Closed => encoder.closed(&mut out),
        }
    }
    out
}
