//! A URL's query, as each kind of request parses it.

use dwell_model::{Cursor, Key, Limits, QueueName, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::look;
use crate::http::{HttpRefusal, Problem};
use crate::json::{self, FromQuery, LeaseIn, NoFieldsIn, PauseIn, SettleFieldsIn};
use crate::query::Query;

/// The input is the whole query.
pub fn query(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    look(reads(text, NoFieldsIn::from_query));
    look(reads(text, |query| json::required_when(FromQuery::from_query(query)?)));
    look(reads(text, |query| LeaseIn::from_query(query)?.terms()));
    look(reads(text, |query| PauseIn::from_query(query)?.pause(Timestamp::MAX)));
    let limit = Limits::default().batch;
    look(reads(text, |query| json::selection(FromQuery::from_query(query)?, limit)));
    look(reads(text, |query| json::revive(FromQuery::from_query(query)?, limit)));
    for action in ["ack", "retry", "release", "bury", "extend", text] {
        look(reads(text, |query| {
            SettleFieldsIn::from_query(query)?.action(action, HttpRefusal::UnknownParameter)
        }));
    }
    look(reads(text, put));
    look(reads(text, take));

    let encoded = format!("a=1&x={}", utf8_percent_encode(text, NON_ALPHANUMERIC));
    let mut query = look(Query::parse(Some(&encoded))).expect("what was encoded is decoded");
    assert_eq!(look(query.text("x")), Some(Some(text.to_owned())));
    assert_eq!(look(query.number("a")), Some(Some(1u8)));
    assert!(query.is_empty());
}

fn reads<T>(text: &str, read: impl FnOnce(&mut Query) -> Result<T, Problem>) -> Result<T, Problem> {
    let mut query = Query::parse(Some(text))?;
    let value = read(&mut query)?;
    query.finish()?;
    Ok(value)
}

/// The parameters of a put, as its handler parses them.
fn put(query: &mut Query) -> Result<(), Problem> {
    json::when(FromQuery::from_query(query)?)?;
    query.parsed::<Key>("key")?;
    query.word("on_conflict", &dwell_wire::ON_CONFLICT)?;
    query.number::<u32>("priority")?;
    query.parsed::<Timestamp>("expires")?;
    query.attempts("max_attempts")?;
    query.duration_ms("lease")?;
    Ok(())
}

/// Those of takes and lists.
fn take(query: &mut Query) -> Result<(), Problem> {
    for name in query.all("queue").iter().flat_map(|names| names.split(',')) {
        QueueName::new(name)?;
    }
    let max = query.bounded("max", 10, 1, 1_000)?;
    assert!((1..=1_000).contains(&max));
    query.duration_ms("wait")?;
    query.parsed::<Cursor>("cursor")?;
    query.flag("body")?;
    Ok(())
}
