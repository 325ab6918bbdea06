//! The OpenAPI 3.1 document, made from the types that handlers read and write.
//!
//! - `operations`: what each route takes and answers; held against the router's own table by a test
//! - this file: the document
//!
//! Schemas come from the types in `json` (schemars), and the codes of problems from the server's one table of them.

mod operations;
mod parameters;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use self::operations::{Answer, OPERATIONS, Operation, Request};
use self::parameters::{PATH, Parameter};
use crate::http::{KINDS, Problem, lookup};

/// Makes schemas, and gathers those that are referred to by name.
pub(crate) struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

/// Gives the schema of a type.
pub(crate) type Schema = fn(&mut Schemas) -> Value;

/// The schema of what is read as a `T`.
pub(crate) fn read<T: JsonSchema>(schemas: &mut Schemas) -> Value {
    schemas.requests.subschema_for::<T>().to_value()
}

/// The schema of what a `T` is written as.
pub(crate) fn written<T: JsonSchema>(schemas: &mut Schemas) -> Value {
    schemas.answers.subschema_for::<T>().to_value()
}

impl Schemas {
    fn new() -> Schemas {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Schemas {
            requests: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }

    fn all(mut self) -> Map<String, Value> {
        let mut all = self.requests.take_definitions(true);
        for (name, schema) in self.answers.take_definitions(true) {
            let before = all.insert(name.clone(), schema.clone());
            assert!(before.is_none_or(|before| before == schema), "two schemas are called {name}");
        }
        all
    }
}

/// The document as it is served.
pub(crate) fn document() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let make = || serde_json::to_vec(&build()).expect("a document has text for keys").into();
    DOCUMENT.get_or_init(make).clone()
}

fn build() -> Value {
    let mut schemas = Schemas::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in OPERATIONS {
        let method = operation.method.to_lowercase();
        let described = describe(operation, &mut schemas);
        paths.entry(operation.path).or_default().insert(method, described);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "dwell",
            "summary": "A delay queue: hold a message until its moment",
            "description": "docs/http.md in the repository says more about each operation.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "bearer": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "Where the server has tokens" },
            },
            "schemas": schemas.all(),
        },
    })
}

fn describe(operation: &Operation, schemas: &mut Schemas) -> Value {
    let in_path = |parameter: &&Parameter| operation.path.contains(&format!("{{{}}}", parameter.name));
    let mut parameters = Vec::new();
    for parameter in PATH.iter().filter(in_path) {
        parameters.push(parameter_in("path", true, parameter, schemas));
    }
    for parameter in operation.query {
        let is_required = operation.requires.contains(&parameter.name);
        parameters.push(parameter_in("query", is_required, parameter, schemas));
    }
    for parameter in operation.headers {
        parameters.push(parameter_in("header", false, parameter, schemas));
    }
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": responses(operation, schemas),
    });
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(body) = request_body(operation.request, schemas) {
        described["requestBody"] = body;
    }
    described
}

fn parameter_in(place: &str, required: bool, parameter: &Parameter, schemas: &mut Schemas) -> Value {
    let mut described = json!({
        "name": parameter.name,
        "in": place,
        "required": required,
        "description": parameter.text,
        "schema": (parameter.schema)(schemas),
    });
    if parameter.name == "queue" && place == "query" {
        described["explode"] = true.into();
    }
    described
}

fn request_body(request: Request, schemas: &mut Schemas) -> Option<Value> {
    Some(match request {
        Request::Nothing => return None,
        Request::Raw => json!({
            "description": "The message's body, whatever its bytes. The content type is kept with it",
            "content": {
                "application/octet-stream": { "schema": { "type": "string", "format": "binary" } },
            },
        }),
        Request::Json(schema) => {
            json!({ "required": true, "content": { "application/json": { "schema": schema(schemas) } } })
        }
        Request::JsonOrQuery(schema) => json!({
            "description": "Fields may come in the query instead, by the same names; not both",
            "content": { "application/json": { "schema": schema(schemas) } },
        }),
        Request::Items(schema) => {
            let item = schema(schemas);
            json!({
                "required": true,
                "description": "A JSON array, or one item a line",
                "content": {
                    "application/json": { "schema": { "type": "array", "items": item } },
                    "application/x-ndjson": { "schema": { "type": "string" } },
                },
            })
        }
    })
}

fn responses(operation: &Operation, schemas: &mut Schemas) -> Value {
    let mut responses = Map::new();
    for (status, answer) in operation.answers {
        responses.insert(status.to_string(), response(*answer, schemas));
    }
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in operation.codes() {
        let kind = lookup(code).unwrap_or_else(|| panic!("there is no code {code}"));
        by_status.entry(kind.status).or_default().push(code);
    }
    let problem = written::<Problem>(schemas);
    for (status, mut codes) in by_status {
        codes.sort_unstable();
        codes.dedup();
        let titles: Vec<String> = codes
            .iter()
            .filter_map(|code| lookup(code))
            .map(|kind| format!("{}: {}", kind.code, kind.title))
            .collect();
        let schema = json!({ "allOf": [problem, { "properties": { "code": { "enum": codes } } }] });
        let mut described = json!({
            "description": titles.join("; "),
            "content": { "application/problem+json": { "schema": schema } },
        });
        if KINDS.iter().any(|kind| codes.contains(&kind.code) && matches!(kind.status, 429 | 503 | 507)) {
            let seconds = json!({ "type": "integer", "minimum": 0 });
            described["headers"] = json!({
                "Retry-After": { "description": "Seconds, where it is retryable", "schema": seconds },
            });
        }
        // A status that also says something else, such as 503 of health, has both.
        responses.insert(status.to_string(), described);
    }
    Value::Object(responses)
}

fn response(answer: Answer, schemas: &mut Schemas) -> Value {
    let octets = json!({ "schema": { "type": "string", "format": "binary" } });
    match answer {
        Answer::Json(schema) => {
            json!({ "description": "Done", "content": { "application/json": { "schema": schema(schemas) } } })
        }
        Answer::Created(schema) => json!({
            "description": "Put",
            "headers": { "Location": { "description": "The message", "schema": { "type": "string" } } },
            "content": { "application/json": { "schema": schema(schemas) } },
        }),
        Answer::JsonOrRaw(schema) => json!({
            "description": "As JSON, or with `Accept: application/octet-stream` the body alone",
            "content": {
                "application/json": { "schema": schema(schemas) },
                "application/octet-stream": octets,
            },
        }),
        Answer::Each(schema) => {
            let done = schema(schemas);
            let refused = written::<crate::http::Refused<'static>>(schemas);
            json!({
                "description": "One answer an item, in order; in the form of the request",
                "content": {
                    "application/json": {
                        "schema": {
                            "type": "object",
                            "required": ["answers"],
                            "properties": {
                                "answers": { "type": "array", "items": { "anyOf": [done, refused] } },
                            },
                        },
                    },
                    "application/x-ndjson": { "schema": { "type": "string" } },
                },
            })
        }
        Answer::Nothing => json!({ "description": "There was none" }),
        Answer::Text(media) => {
            json!({ "description": "Text", "content": { media: { "schema": { "type": "string" } } } })
        }
        Answer::Document => {
            json!({ "description": "This document", "content": { "application/json": { "schema": { "type": "object" } } } })
        }
    }
}

#[cfg(test)]
mod tests;
