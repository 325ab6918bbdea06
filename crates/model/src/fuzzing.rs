//! What the text fuzzer calls: every text form of the model is parsed, printed and parsed again.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use crate::{
    Cursor, Headers, Holder, IdempotencyKey, Invalid, Key, LeaseToken, MessageId, Number, QueueName, Receipt,
    Timestamp, format_duration_ms, parse_duration_ms,
};

/// Parses `data` as each of the model's text forms.
///
/// The first byte chooses: if it is even, the rest is parsed as it is; if it is odd, a receipt and a cursor are made of
/// the rest, so that the code behind checksum and base64 is reached.
///
/// # Panics
/// If a parsed value does not print as a text that parses to the same value, or an error carries too much of the text.
pub fn texts(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    if choice % 2 == 1 {
        return made(rest);
    }
    let Ok(text) = std::str::from_utf8(rest) else { return };
    survives::<MessageId>(text);
    survives::<Receipt>(text);
    survives::<Cursor>(text);
    survives::<Timestamp>(text);
    survives::<Number>(text);
    survives::<QueueName>(text);
    survives::<Key>(text);
    survives::<IdempotencyKey>(text);
    survives::<Holder>(text);
    match parse_duration_ms(text) {
        Ok(ms) => assert_eq!(parse_duration_ms(&format_duration_ms(ms)), Ok(ms)),
        Err(invalid) => is_short(&invalid),
    }
    match Headers::new(text.lines().filter_map(|line| line.split_once(':'))) {
        Ok(headers) => {
            assert!(headers.size() <= Headers::MAX_LEN);
            assert_eq!(Headers::new(headers.iter()), Ok(headers.clone()));
        }
        Err(invalid) => is_short(&invalid),
    }
}

/// Seed texts that are close to each kind of text.
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let id = MessageId::new(Timestamp::MAX, MessageId::MAX_SHARD, 7, 1 << 39);
    let due = Timestamp::MIN;
    let queue = QueueName::new("orders/eu;1").expect("it is a name");
    let texts = [
        ("id", id.to_string()),
        ("receipt", Receipt { queue, id, token: LeaseToken(u128::MAX) }.to_string()),
        ("cursor", Cursor { due, id }.to_string()),
        ("instant", "2026-11-21T18:00:00.123Z".to_owned()),
        ("instant-offset", "2026-11-21 18:00:60+05:30".to_owned()),
        ("instant-zone", "2026-11-21T18:00:00+01:00[Europe/Berlin]".to_owned()),
        ("instant-last", "9999-12-31T23:59:59.999-23:59".to_owned()),
        ("number", "9007199254740991".to_owned()),
        ("queue", "a/b;c.d$e_f(g):h@i+j-k".to_owned()),
        ("key", "заказ 7".to_owned()),
        ("duration", "1d2h3m4s5ms".to_owned()),
        ("duration-long", "213503982334d14h25m51s615ms".to_owned()),
        ("headers", "content-type:text/plain\nx-y:é\n".to_owned()),
    ];
    let mut seeds: Vec<_> =
        texts.into_iter().map(|(name, text)| (name.to_owned(), [b" ", text.as_bytes()].concat())).collect();
    let bits = id.as_bits().to_be_bytes();
    seeds.push(("made".to_owned(), [&[1][..], &bits, &bits, b"orders"].concat()));
    seeds
}

/// A receipt and a cursor made of arbitrary bytes: id, token or due, queue.
fn made(data: &[u8]) {
    let Some((id, rest)) = data.split_first_chunk::<16>() else { return };
    let Some((token, queue)) = rest.split_first_chunk::<16>() else { return };
    let id = u128::from_be_bytes(*id);
    let ms = i64::from_be_bytes(*token.first_chunk().expect("eight of sixteen"));
    let mut bytes = vec![1];
    for part in [&id.to_be_bytes()[..], token, queue] {
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    let receipt = crate::messages::base64::encode(&bytes);
    let name = std::str::from_utf8(queue).ok().and_then(|name| QueueName::new(name).ok());
    let is_one = MessageId::from_bits(id).is_ok() && name.is_some();
    assert_eq!(receipt.parse::<Receipt>().is_ok(), is_one);
    survives::<Receipt>(&receipt);
    let cursor = crate::messages::base64::encode(&[&ms.to_be_bytes()[..], &id.to_be_bytes()].concat());
    let is_one = MessageId::from_bits(id).is_ok() && Timestamp::from_ms(ms).is_ok();
    assert_eq!(cursor.parse::<Cursor>().is_ok(), is_one);
    survives::<Cursor>(&cursor);
    if let Ok(id) = MessageId::from_bits(id) {
        assert_eq!(MessageId::new(id.due_at_put(), id.shard(), id.incarnation(), id.counter()), id);
        survives::<MessageId>(&id.to_string());
    }
    if let Ok(at) = Timestamp::from_ms(ms) {
        assert_eq!(at.to_string().parse(), Ok(at));
    }
}

fn survives<T: FromStr<Err = Invalid> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let printed = value.to_string();
            assert_eq!(printed.parse::<T>(), Ok(value), "{printed}");
        }
        Err(invalid) => is_short(&invalid),
    }
}

/// Checks that an error names the text that it refuses, and does not carry a megabyte of it.
fn is_short(invalid: &Invalid) {
    assert!(!invalid.code().is_empty());
    let said = invalid.to_string().chars().count();
    assert!(said < 500, "{said} characters");
}
