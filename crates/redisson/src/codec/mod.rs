//! Codecs: conversion between a value and the bytes that Java's codec of the same name writes.
//!
//! Java's `remove` and `contains` compare bytes, so a value has to be written byte for byte as Java writes it.
//!
//! | here | Java |
//! |---|---|
//! | [`Text`] | `StringCodec` |
//! | [`Raw`] | `ByteArrayCodec` |
//! | [`Long`], [`Integer`], [`Double`] | `LongCodec`, `IntegerCodec`, `DoubleCodec` |
//! | [`Json`] | `TypedJsonJacksonCodec`, `JacksonCodec`: JSON without types |
//! | [`ClassJson`] | `JsonJacksonCodec`: JSON with `@class` |
//!
//! Redisson's default since 3.19.0 is `Kryo5Codec`, which only Java supports: name another codec in Java to share a
//! queue.
//!
//! # Layout
//! - `text`: strings and bytes
//! - `number`: integers and doubles in decimal
//! - `java_double`: a double as Java prints it
//! - `json`: the two JSON codecs
//! - `jackson`: JSON as Jackson writes it, byte for byte

mod jackson;
mod java_double;
mod json;
mod number;
mod text;

pub use json::{ClassJson, JavaList, JavaLong, Json};
pub use number::{Double, Integer, Long};
pub use text::{Raw, Text};

use super::error::Error;

/// Converts values into payloads and back.
///
/// # Contract
/// - Equal values have equal bytes: those that Java's codec writes.
/// - Bytes that Java's codec wrote are decoded, or refused with [`Error::Value`].
pub trait Codec: Send + Sync {
    /// The type that is put and taken.
    type Value;

    /// Encodes a value.
    ///
    /// # Errors
    /// [`Error::Value`] if the codec cannot write it.
    fn encode(&self, value: &Self::Value) -> Result<Vec<u8>, Error>;

    /// Decodes a value.
    ///
    /// # Errors
    /// [`Error::Value`] if the codec cannot read the bytes.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Value, Error>;
}
