//! The bytes that Java's codecs write and read.

use dwell_redisson::codec::{ClassJson, Codec, Double, Integer, JavaList, JavaLong, Json, Long, Raw, Text};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::java::{Java, all};
use crate::run;

/// `dwell.interop.Order`, as typed JSON has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: String,
    amount: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    customer: Option<JavaLong>,
    weight: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// The same without types: a `Long` is a bare number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct PlainOrder {
    id: String,
    amount: i32,
    customer: Option<i64>,
    weight: f64,
    note: Option<String>,
}

const CLASS: &str = "dwell.interop.Order";

async fn encoded(java: &Java, codec: &str, value: &Value) -> Vec<u8> {
    let answer = java.ask(json!({"do": "encode", "codec": codec, "value": value})).await;
    unhex(answer.unwrap_or_else(|error| panic!("{codec} {value}: {error}")).as_str().expect("hexadecimal"))
}

async fn decoded(java: &Java, codec: &str, bytes: &[u8]) -> Value {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let answer = java.ask(json!({"do": "decode", "codec": codec, "hex": hex})).await;
    answer.unwrap_or_else(|error| panic!("{codec} {}: {error}", bytes.escape_ascii()))
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// Java and Rust write the same bytes, and each reads those of the other.
async fn agree<C>(java: &Java, name: &str, codec: &C, ours: C::Value, java_value: Value)
where
    C: Codec<Value: PartialEq + std::fmt::Debug>,
{
    let bytes = codec.encode(&ours).expect("it can be written");
    let theirs = encoded(java, name, &java_value).await;
    assert_eq!(
        bytes.escape_ascii().to_string(),
        theirs.escape_ascii().to_string(),
        "{} {name}",
        java.release
    );
    assert_eq!(codec.decode(&theirs).expect("it can be read"), ours, "{} {name}", java.release);
}

#[test]
fn simple_codecs_agree() {
    run(async {
        for java in all() {
            for value in ["", "hello", "ü\n😀", "{}"] {
                agree(java, "string", &Text, value.to_owned(), value.into()).await;
            }
            agree(java, "bytes", &Raw, vec![0, 1, 0xff], "0001ff".into()).await;
            for value in [0, -1, i64::MAX, i64::MIN] {
                agree(java, "long", &Long, value, value.into()).await;
            }
            for value in [0, i32::MAX, i32::MIN] {
                agree(java, "integer", &Integer, value, value.into()).await;
            }
        }
    });
}

#[test]
fn doubles_agree() {
    run(async {
        let simple =
            [0.0, -0.0, 1.0, -1.5, 100.0, 0.001, 0.002, 0.0123, 1e-5, 1e7, 9999999.0, 1e10, 123456.789];
        let extreme = [f64::MAX, f64::MIN_POSITIVE, 5e-324, 9007199254740993.0, 1.0 / 3.0, 1e100, 1e-100];
        for java in all() {
            for value in simple.into_iter().chain(extreme) {
                agree(java, "double", &Double, value, value.to_string().into()).await;
            }
            for (value, text) in [(f64::INFINITY, "Infinity"), (f64::NEG_INFINITY, "-Infinity")] {
                agree(java, "double", &Double, value, text.into()).await;
            }
        }
    });
}

#[test]
fn typed_json_agrees() {
    run(async {
        let codec = ClassJson::<Order>::new(CLASS);
        for java in all() {
            for (customer, weight, note) in [
                (None, 1.0, None),
                (Some(5), 1e10, Some("plain")),
                (Some(i64::MIN), 1e-5, Some("ü\n\t\r\u{8}\u{c}😀\u{7f}\u{2028}/\"\\\u{1}\u{1f}")),
            ] {
                let ours = Order {
                    id: "7".to_owned(),
                    amount: -3,
                    customer: customer.map(JavaLong),
                    weight,
                    note: note.map(str::to_owned),
                };
                let theirs =
                    json!({"id": "7", "amount": -3, "customer": customer, "weight": weight, "note": note});
                agree(java, "json", &codec, ours.clone(), theirs.clone()).await;
                let back = decoded(java, "json", &codec.encode(&ours).unwrap()).await;
                assert_eq!(back, theirs, "{}", java.release);
            }
        }
    });
}

#[test]
fn values_inside_typed_json_agree() {
    run(async {
        for java in all() {
            agree(java, "json", &ClassJson::bare(), JavaLong(5), json!({"long": 5})).await;
            agree(java, "json", &ClassJson::bare(), "text".to_owned(), json!("text")).await;
            agree(java, "json", &ClassJson::bare(), 5_i32, json!(5)).await;
            agree(java, "json", &ClassJson::bare(), true, json!(true)).await;
            agree(java, "json", &ClassJson::bare(), 1.5_f64, json!(1.5)).await;
            let list = JavaList(vec![json!("x"), json!(1), json!(["java.lang.Long", 2]), json!(null)]);
            let theirs = json!({"list": ["x", 1, {"long": 2}, null]});
            agree(java, "json", &ClassJson::bare(), list, theirs).await;
            let map = ClassJson::<Value>::new("java.util.LinkedHashMap");
            let theirs = json!({"map": {"a": {"long": 5}, "b": 1, "n": null}});
            agree(java, "json", &map, json!({"a": ["java.lang.Long", 5], "b": 1}), theirs).await;
        }
    });
}

#[test]
fn json_without_types_agrees() {
    run(async {
        for java in all() {
            let note = Some("ü😀".to_owned());
            let ours = PlainOrder { id: "7".to_owned(), amount: 3, customer: Some(5), weight: 0.5, note };
            let theirs = serde_json::to_value(&ours).unwrap();
            agree(java, "typed-json", &Json::new(), ours, theirs).await;
            let ours = PlainOrder { id: String::new(), amount: 0, customer: None, weight: 0.0, note: None };
            let theirs = serde_json::to_value(&ours).unwrap();
            agree(java, "typed-json", &Json::new(), ours, theirs).await;
        }
    });
}
