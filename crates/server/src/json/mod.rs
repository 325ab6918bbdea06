//! What goes over the wire as JSON. Field names are documented in `docs/http.md`, and are the same everywhere.
//!
//! What both sides share is `dwell_wire`'s: here it is made of a store's answers, and read into a store's terms.

mod answers;
mod parse;
mod requests;
mod settings;

pub(crate) use answers::{Answer, FoundOut, queue_page, server_info, unread};
pub(crate) use parse::{items, object};
pub(crate) use requests::{
    FromQuery, LeaseIn, NoFieldsIn, PauseIn, SettleFieldsIn, lease, put, required_when, reschedule, revive,
    schedule, selection, settle, target, when,
};
pub(crate) use settings::SettingsIn;
