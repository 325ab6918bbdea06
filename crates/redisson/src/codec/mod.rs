//! Codecs: how a value becomes the bytes that Java's codec of the same name writes, and back.
//!
//! Java's `remove` and `contains` compare bytes, so a value has to be written byte for byte as Java does.
//!
//! | here | Java |
//! |---|---|
//! | [`Text`] | `StringCodec` |
//! | [`Raw`] | `ByteArrayCodec` |
//! | [`Long`], [`Integer`], [`Double`] | `LongCodec`, `IntegerCodec`, `DoubleCodec` |
//! | [`Json`] | `TypedJsonJacksonCodec`, `JacksonCodec`: JSON without types |
//! | [`ClassJson`] | `JsonJacksonCodec`: JSON with `@class` |
//!
//! Redisson's default since 3.19.0 is `Kryo5Codec`, which is Java's own: name another one in Java to share a queue.
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

/// Turns values into payloads and back.
///
/// # Contract
/// - Equal values have equal bytes, the same that Java's codec writes.
/// - Bytes that Java's codec wrote are read, or refused with [`Error::Value`].
pub trait Codec: Send + Sync {
    /// What is put and taken.
    type Value;

    /// The bytes of a value.
    ///
    /// # Errors
    /// [`Error::Value`] if it has none.
    fn encode(&self, value: &Self::Value) -> Result<Vec<u8>, Error>;

    /// The value of these bytes.
    ///
    /// # Errors
    /// [`Error::Value`] if there is none.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Value, Error>;
}
