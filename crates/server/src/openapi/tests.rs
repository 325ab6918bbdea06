//! The document checked against itself: every reference resolves, and every schema is referred to.

use std::collections::BTreeSet;

use super::*;

#[test]
fn each_reference_leads_somewhere_and_each_schema_is_referred_to() {
    let document = build();
    let mut open = vec![&document];
    let mut referred = BTreeSet::new();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                    referred.insert(pointer.rsplit('/').next().unwrap().to_owned());
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    let all: BTreeSet<String> = schemas().into_iter().map(|(name, _)| name).collect();
    assert_eq!(referred, all);
}
