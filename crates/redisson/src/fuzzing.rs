//! What the fuzzers of Redisson's bytes call: elements and payloads as other clients wrote them.

use super::codec::{ClassJson, Codec, Double, Integer, JavaList, JavaLong, Json, Long, Text};
use super::element::{self, Layout};

/// Decodes `data` as a packed element, and packs the result again.
///
/// # Panics
/// If a decoded element does not pack to the same bytes, or these decode differently.
pub fn element(data: &[u8]) {
    let Ok(read) = element::decode(data) else { return };
    assert!(data.ends_with(read.payload));
    if let Ok(id) = read.id.try_into() {
        assert_eq!(element::encode(read.layout, id, read.payload), data);
    }
    for layout in [Layout::Old, Layout::New] {
        let packed = element::pack(layout, read.payload);
        let again = element::decode(&packed).expect("what was packed is read");
        assert_eq!((again.layout, again.payload), (layout, read.payload));
    }
}

/// Decodes `data` with every codec, then encodes and decodes the result again.
///
/// # Panics
/// If a value changes in the process.
pub fn payload(data: &[u8]) {
    survives(&Text, data);
    survives(&Long, data);
    survives(&Integer, data);
    survives(&ClassJson::<JavaLong>::bare(), data);
    survives(&ClassJson::<JavaList<String>>::bare(), data);
    survives(&Json::<Vec<String>>::new(), data);
    if let Ok(double) = Double.decode(data) {
        let again =
            Double.decode(&Double.encode(&double).expect("it can be written")).expect("it can be read");
        assert!(again.to_bits() == double.to_bits() || (again.is_nan() && double.is_nan()));
    }
    // The first encoding drops nulls inside objects, so only the second must not change the value.
    if let Ok(value) = Json::<serde_json::Value>::new().decode(data) {
        let written = Json::new().encode(&value).expect("it can be written");
        let read: serde_json::Value = Json::new().decode(&written).expect("it can be read");
        assert_eq!(Json::new().encode(&read).expect("it can be written"), written);
    }
}

fn survives<C: Codec<Value: PartialEq + std::fmt::Debug>>(codec: &C, data: &[u8]) {
    if let Ok(value) = codec.decode(data) {
        let written = codec.encode(&value).expect("what was read can be written");
        assert_eq!(codec.decode(&written).expect("what was written can be read"), value);
    }
}

/// The name of a corpus, and the function that its files are run through.
pub type Entry = (&'static str, fn(&[u8]));

/// All corpora.
pub const ENTRIES: [Entry; 2] = [("redisson_element", element), ("redisson_payload", payload)];

/// Seeds: bytes as real clients and these encoders write them.
pub fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let mut seeds = Vec::new();
    let id = [0x79, 0x09, 0x89, 0x2a, 0xaf, 0x16, 0xac, 0x43];
    for layout in [Layout::Old, Layout::New] {
        for (name, payload) in [("empty", b"".as_slice()), ("nul", b"\0"), ("hello", b"hello")] {
            let packed = element::encode(layout, id, payload);
            seeds.push(("redisson_element", format!("{layout}-{name}"), packed));
        }
    }
    for (name, payload) in [
        ("long", "-9223372036854775808"),
        ("double", "1.7976931348623157E308"),
        ("least-double", "4.9E-324"),
        ("typed-long", r#"["java.lang.Long",5]"#),
        ("typed-list", r#"["java.util.ArrayList",["a","\uD83D\uDE00"]]"#),
        ("order", r#"{"@class":"x.Order","amount":-3,"note":null,"weight":1.0E10}"#),
    ] {
        seeds.push(("redisson_payload", name.to_owned(), payload.as_bytes().to_vec()));
    }
    seeds
}
