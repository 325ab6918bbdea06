//! JSON on the wire. `docs/http.md` documents the field names, which are the same everywhere.
//!
//! `dwell_wire` has the types that client and server share. Here they are made of a store's answers, and converted to a
//! store's arguments.

mod answers;
mod parse;
mod requests;
mod settings;

pub(crate) use answers::{FoundOut, ItemAnswer, queue_page, server_info, unread};
pub(crate) use parse::{items, object};
pub(crate) use requests::{
    FromQuery, LeaseIn, NoFieldsIn, PauseIn, SettleFieldsIn, lease, put, required_when, reschedule, revive,
    schedule, selection, settle, target, when,
};
pub(crate) use settings::SettingsIn;
