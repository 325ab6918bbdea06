//! Parses the URL of a store from the command line, and repeats nothing of an invalid one, which may contain a password.

use std::ffi::OsStr;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

/// The parser of a type of address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreUrl<A>(PhantomData<A>);

impl<A> StoreUrl<A> {
    pub(crate) fn new() -> StoreUrl<A> {
        StoreUrl(PhantomData)
    }
}

impl<A> TypedValueParser for StoreUrl<A>
where
    A: FromStr<Err: Display> + Clone + Send + Sync + 'static,
{
    type Value = A;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<A, Error> {
        let text = value.to_str().unwrap_or_default();
        text.parse().map_err(|refusal: A::Err| {
            let option = arg.and_then(Arg::get_long).unwrap_or_default();
            let reason = format!("invalid value for '--{option}': {refusal}\n");
            Error::raw(ErrorKind::ValueValidation, reason).with_cmd(command)
        })
    }
}
