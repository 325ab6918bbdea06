//! JSON bodies, as each kind of request reads them.

use dwell_model::{Limits, QueueName, Settings, Timestamp};
use serde_json::value::RawValue;

use super::look;
use crate::http::Refusal;
use crate::json::{
    LeaseIn, NoFieldsIn, PauseIn, PutIn, RescheduleIn, ReviveIn, SelectIn, SettingsIn, SettleFieldsIn,
    SettleIn, TargetIn, WhenIn, object,
};

/// The whole of the bytes is the body.
pub fn json(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let queue = QueueName::new("orders").expect("it is a name");
    let put = look(object::<PutIn>(text).and_then(|put| put.put(None)));
    if let Some(put) = &put {
        let again = look(object::<PutIn>(text).and_then(|again| again.put(Some(&put.queue))));
        assert_eq!(again.as_ref(), Some(put), "the queue of the item is the queue of the path");
        let listed = format!("[ {text} ]");
        let items: Vec<&RawValue> = look(object(&listed)).expect("what is an item alone is one in a list");
        assert_eq!(items.len(), 1);
        assert_eq!(look(object::<PutIn>(items[0].get()).and_then(|item| item.put(None))).as_ref(), Some(put));
    }
    look(object::<PutIn>(text).and_then(|put| put.put(Some(&queue))));
    look(object::<WhenIn>(text).and_then(WhenIn::required));
    look(object::<TargetIn>(text).and_then(TargetIn::target));
    look(object::<RescheduleIn>(text).and_then(RescheduleIn::target_and_when));
    look(object::<NoFieldsIn>(text));
    look(object::<LeaseIn>(text).and_then(LeaseIn::lease_ms));
    look(object::<SettleIn>(text).and_then(SettleIn::settle));
    for action in ["ack", "retry", "release", "bury", "extend", "?"] {
        look(object::<SettleFieldsIn>(text).and_then(|fields| fields.action(action, Refusal::UnknownField)));
    }
    look(object::<PauseIn>(text).and_then(|pause| pause.pause(Timestamp::MIN)));
    let limit = Limits::default().batch;
    look(object::<SelectIn>(text).and_then(|select| select.selection(limit)));
    look(object::<ReviveIn>(text).and_then(|revive| revive.selection_and_when(limit)));
    look(object::<SettingsIn>(text).and_then(|settings| settings.changes(&Settings::default())));
}
