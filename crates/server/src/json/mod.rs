//! What goes over the wire as JSON. Field names are documented in `docs/http.md`, and are the same everywhere.

mod answers;
mod attempts;
mod parse;
mod requests;
pub(crate) mod schema;
mod settings;

use std::borrow::Cow;
use std::fmt::Display;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

pub(crate) use answers::{
    Answer, CancelledOut, DeliveryOut, FoundOut, FoundSchema, LimitsOut, MessageOut, MessagesOut, MovedOut,
    PutOut, QueueOut, QueuesOut, RemovedOut, SettledOut, SweptOut, TakenOut, UnreadOut, lease_until,
};
pub(crate) use attempts::parse_attempts;
pub(crate) use parse::{items, object};
pub(crate) use requests::{
    FromQuery, LeaseIn, NoFieldsIn, PauseIn, PutIn, RescheduleIn, ReviveIn, SelectIn, SettleFieldsIn,
    SettleIn, TargetIn, WhenIn, on_conflict_words,
};
pub(crate) use settings::{SettingsIn, SettingsOut};

/// A value that goes over the wire as its own text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<T>(pub(crate) T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<T: schema::Shown> JsonSchema for Text<T> {
    fn schema_name() -> Cow<'static, str> {
        T::Schema::schema_name()
    }

    fn inline_schema() -> bool {
        T::Schema::inline_schema()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::Schema::json_schema(generator)
    }
}
