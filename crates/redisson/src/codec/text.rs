//! Strings and bytes: stored in Redis as they are.

use super::{Codec, Error};

/// `StringCodec`: UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text;

impl Codec for Text {
    type Value = String;

    fn encode(&self, value: &String) -> Result<Vec<u8>, Error> {
        Ok(value.as_bytes().to_vec())
    }

    fn decode(&self, bytes: &[u8]) -> Result<String, Error> {
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|error| Error::Value { codec: "text", reason: error.to_string() })
    }
}

/// `ByteArrayCodec`: the bytes themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw;

impl Codec for Raw {
    type Value = Vec<u8>;

    fn encode(&self, value: &Vec<u8>) -> Result<Vec<u8>, Error> {
        Ok(value.clone())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(bytes.to_vec())
    }
}
