//! The document beside the router, the table of codes, and itself.

use std::collections::BTreeSet;

use super::*;
use crate::http::routes;

#[test]
fn the_document_and_the_router_have_the_same_routes() {
    let described: BTreeSet<String> =
        OPERATIONS.iter().map(|operation| format!("{} {}", operation.method, operation.path)).collect();
    let routed: BTreeSet<String> =
        routes().iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(described, routed);
    assert_eq!(described.len(), OPERATIONS.len(), "an operation stands there twice");
}

#[test]
fn every_code_belongs_to_a_route_and_every_route_s_codes_are_there() {
    let described: BTreeSet<&str> = OPERATIONS.iter().flat_map(Operation::codes).collect();
    let all: BTreeSet<&str> = KINDS.iter().map(|kind| kind.code).collect();
    let of_no_route = BTreeSet::from(["method_not_allowed"]);
    assert_eq!(described.union(&of_no_route).copied().collect::<BTreeSet<_>>(), all);
}

#[test]
fn ids_are_unique_and_each_reference_leads_somewhere() {
    let ids: BTreeSet<&str> = OPERATIONS.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), OPERATIONS.len());
    let document = build();
    let mut open = vec![&document];
    let mut references = 0;
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                    references += 1;
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(references > 50, "{references}");
}

#[test]
fn every_part_of_a_path_is_described() {
    for operation in OPERATIONS {
        for part in operation.path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            assert!(PATH.iter().any(|parameter| parameter.name == part), "{part}");
        }
    }
}
