//! JSON, without types (`TypedJsonJacksonCodec`, `JacksonCodec`) and with (`JsonJacksonCodec`).

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Codec, Error, jackson};

/// JSON without types: Java's codec knows the type from the class it was created with.
pub struct Json<T> {
    value: PhantomData<fn() -> T>,
}

impl<T> Json<T> {
    /// Creates the codec for values of this type.
    pub const fn new() -> Json<T> {
        Json { value: PhantomData }
    }
}

impl<T> Default for Json<T> {
    fn default() -> Json<T> {
        Json::new()
    }
}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}

impl<T: Serialize + DeserializeOwned> Codec for Json<T> {
    type Value = T;

    fn encode(&self, value: &T) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        jackson::write(&serde_json::to_value(value).map_err(unwritable)?, &mut out);
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(bytes).map_err(unreadable)
    }
}

/// JSON with types, Redisson's default before 3.10 and still common: objects carry `@class`.
///
/// The class of the value itself is that of the codec. Nested values that are typed in Java need their type too: a
/// field `#[serde(rename = "@class")]` for an object, [`JavaLong`] for a `Long`, [`JavaList`] for a list. `String`,
/// `Integer` and `int`, `long`, `double` and `boolean` are written without a type.
pub struct ClassJson<T> {
    class: Option<String>,
    value: PhantomData<fn() -> T>,
}

impl<T> ClassJson<T> {
    /// Creates the codec for objects of a Java class, such as `com.example.Order`.
    pub fn new(class: impl Into<String>) -> ClassJson<T> {
        ClassJson { class: Some(class.into()), value: PhantomData }
    }

    /// Creates the codec for values that carry their own type, or none: a string, a [`JavaLong`], a [`JavaList`].
    pub const fn bare() -> ClassJson<T> {
        ClassJson { class: None, value: PhantomData }
    }
}

impl<T> fmt::Debug for ClassJson<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassJson").field("class", &self.class).finish()
    }
}

impl<T: Serialize + DeserializeOwned> Codec for ClassJson<T> {
    type Value = T;

    fn encode(&self, value: &T) -> Result<Vec<u8>, Error> {
        let mut value = serde_json::to_value(value).map_err(unwritable)?;
        if let Some(class) = &self.class {
            let Value::Object(fields) = &mut value else {
                return Err(refused(format!("writes objects of {class}, and this is none")));
            };
            fields.insert(jackson::CLASS.to_owned(), Value::String(class.clone()));
        }
        let mut out = Vec::new();
        jackson::write(&value, &mut out);
        Ok(out)
    }

    fn decode(&self, bytes: &[u8]) -> Result<T, Error> {
        let mut value: Value = serde_json::from_slice(bytes).map_err(unreadable)?;
        if let Some(class) = &self.class {
            let found = value.as_object_mut().and_then(|fields| fields.remove(jackson::CLASS));
            if found.as_ref().and_then(Value::as_str) != Some(class) {
                let found = found.map_or("no @class".to_owned(), |found| found.to_string());
                return Err(refused(format!("reads objects of {class}, and found {found}")));
            }
        }
        serde_json::from_value(value).map_err(unreadable)
    }
}

/// A `java.lang.Long` inside typed JSON: `["java.lang.Long",5]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JavaLong(pub i64);

const LONG: &str = "java.lang.Long";

impl Serialize for JavaLong {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (LONG, self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JavaLong {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JavaLong, D::Error> {
        let (class, value) = <(String, i64)>::deserialize(deserializer)?;
        if class == LONG {
            Ok(JavaLong(value))
        } else {
            Err(D::Error::custom(format!("{class} is no {LONG}")))
        }
    }
}

/// A list inside typed JSON: `["java.util.ArrayList",[…]]`. Lists of other classes can be read too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct JavaList<T>(pub Vec<T>);

impl<T: Serialize> Serialize for JavaList<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ("java.util.ArrayList", &self.0).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JavaList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JavaList<T>, D::Error> {
        let (_class, items) = <(String, Vec<T>)>::deserialize(deserializer)?;
        Ok(JavaList(items))
    }
}

fn unwritable(error: serde_json::Error) -> Error {
    refused(format!("cannot write this: {error}"))
}

fn unreadable(error: serde_json::Error) -> Error {
    refused(format!("cannot read this: {error}"))
}

fn refused(reason: String) -> Error {
    Error::Value { codec: "JSON", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Order {
        id: String,
        amount: i32,
        customer: Option<JavaLong>,
        tags: JavaList<String>,
    }

    fn order() -> Order {
        let tags = JavaList(vec!["new".to_owned()]);
        Order { id: "7".to_owned(), amount: 3, customer: Some(JavaLong(5)), tags }
    }

    const TYPED: &str = r#"{"@class":"x.Order","amount":3,"customer":["java.lang.Long",5],"id":"7","tags":["java.util.ArrayList",["new"]]}"#;

    #[test]
    fn typed_objects_carry_their_class() {
        let codec = ClassJson::<Order>::new("x.Order");
        let bytes = codec.encode(&order()).unwrap();
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), TYPED);
        assert_eq!(codec.decode(&bytes).unwrap(), order());
    }

    #[test]
    fn another_class_is_refused() {
        let error = ClassJson::<Order>::new("y.Order").decode(TYPED.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("x.Order"), "{error}");
        let error = ClassJson::<String>::new("y.Order").encode(&"x".to_owned()).unwrap_err();
        assert_eq!(error.code(), "redisson_value");
        assert!(ClassJson::<JavaLong>::bare().decode(br#"["java.lang.Short",5]"#).is_err());
    }

    #[test]
    fn plain_json_has_no_class() {
        let value = serde_json::json!({"b": 1.0, "a": null});
        assert_eq!(Json::new().encode(&value).unwrap(), br#"{"b":1.0}"#);
        assert!(Json::<Order>::new().decode(b"{").is_err());
    }
}
