//! Parses the URL of a PostgreSQL from the command line, and repeats nothing of an invalid one, which may contain a
//! password.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use dwell_postgres::{Address, OpenError};

/// The parser.
#[derive(Clone, Copy, Debug)]
pub(super) struct PostgresUrl;

impl TypedValueParser for PostgresUrl {
    type Value = Address;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Address, Error> {
        let text = value.to_str().unwrap_or_default();
        text.parse().map_err(|refusal: OpenError| {
            let option = arg.and_then(Arg::get_long).unwrap_or_default();
            let reason = format!("invalid value for '--{option}': {refusal}\n");
            Error::raw(ErrorKind::ValueValidation, reason).with_cmd(command)
        })
    }
}
