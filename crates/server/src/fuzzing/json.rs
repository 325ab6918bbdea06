//! JSON bodies, as each kind of request parses them.

use dwell_model::{Limits, QueueName, Settings, Timestamp};
use serde_json::value::RawValue;

use super::look;
use crate::http::HttpRefusal;
use crate::json::{self, LeaseIn, NoFieldsIn, PauseIn, SettingsIn, SettleFieldsIn, object};

/// The input is the whole body.
pub fn json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let queue = QueueName::new("orders").expect("it is a name");
    let put = look(object(text).and_then(|item| json::put(item, None)));
    if let Some(put) = &put {
        let again = look(object(text).and_then(|item| json::put(item, Some(&put.queue))));
        assert_eq!(again.as_ref(), Some(put), "the queue of the item is the queue of the path");
        let listed = format!("[ {text} ]");
        let items: Vec<&RawValue> = look(object(&listed)).expect("what is an item alone is one in a list");
        assert_eq!(items.len(), 1);
        assert_eq!(look(object(items[0].get()).and_then(|item| json::put(item, None))).as_ref(), Some(put));
    }
    look(object(text).and_then(|item| json::put(item, Some(&queue))));
    look(object(text).and_then(json::required_when));
    look(object(text).and_then(json::target));
    look(object(text).and_then(json::reschedule));
    look(object::<NoFieldsIn>(text));
    look(object::<LeaseIn>(text).and_then(LeaseIn::terms));
    look(object(text).and_then(json::settle));
    for action in ["ack", "retry", "release", "bury", "extend", "?"] {
        look(
            object::<SettleFieldsIn>(text)
                .and_then(|fields| fields.action(action, HttpRefusal::UnknownField)),
        );
    }
    look(object::<PauseIn>(text).and_then(|pause| pause.pause(Timestamp::MIN)));
    let limit = Limits::default().batch;
    look(object(text).and_then(|fields| json::selection(fields, limit)));
    look(object(text).and_then(|fields| json::revive(fields, limit)));
    look(object::<SettingsIn>(text).and_then(|settings| settings.changes(&Settings::default())));
}
