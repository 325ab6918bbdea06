//! The OpenAPI 3.1 document, generated from the [table of routes](dwell_wire::ROUTES) and the types that handlers read
//! and write.
//!
//! Schemas come from those types (schemars); the table refers to them by name.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use dwell_model::{AttemptLimit, Holder, IdempotencyKey, Key, MessageId, QueueName, Receipt, Timestamp};
use dwell_wire::{
    Answer, Cancelled, Deaths, Delivery, Forecast, Found, Instants, LeaseItem, Me, Message, Moved, Overview,
    PATH_PARAMETERS, Page, Parameter, Problem, PutAnswer, PutItem, QueuePage, QueueStats, ROUTES, Recent,
    Removed, Request, RescheduleItem, ReviveFields, Route, Schedule, ScheduleDefined, ScheduleFields,
    Schedules, SelectFields, ServerInfo, SettleItem, Settled, Sink, SinkTested, Sinks, Swept, Taken,
    TargetFields, WhenFields, lookup, schema,
};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::http::{Done, HealthOut, RefusedItem};
use crate::json::{LeaseIn, NoFieldsIn, PauseIn, SettingsIn, SettleFieldsIn};

/// The schemas of all types that are read or written, by name.
fn schemas() -> Map<String, Value> {
    let generator = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
    };
    macro_rules! add {
        ($generator:ident: $($type:ty,)*) => { $($generator.subschema_for::<$type>();)* };
    }
    let mut read = generator().for_deserialize().into_generator();
    add! { read:
        schema::Action, AttemptLimit, schema::Duration, MessageId, Timestamp, Holder, Key, QueueName, Receipt, IdempotencyKey,
        LeaseIn, LeaseItem<'_>, NoFieldsIn, PauseIn, PutItem<'_>, RescheduleItem<'_>, ReviveFields<'_>, ScheduleFields<'_>, SelectFields,
        SettingsIn,
        SettleFieldsIn, SettleItem<'_>, TargetFields<'_>, WhenFields<'_>,
    }
    let mut written = generator().for_serialize().into_generator();
    add! { written:
        Cancelled, Deaths, Delivery<'_>, Forecast, HealthOut, Me<'_>, Message<'_>, Moved, Overview, Page<'_>, Problem<'_>, PutAnswer, QueuePage,
        QueueStats, Recent, Removed, ServerInfo, Settled, Swept, Taken<'_>,
        Instants, Schedule<'_>, ScheduleDefined, Schedules<'_>, Sink, SinkTested, Sinks,
        Done<'_, Cancelled>, Done<'_, Found<'_>>, Done<'_, Moved>, Done<'_, PutAnswer>, Done<'_, Settled>, RefusedItem<'_>,
    }
    let mut all = read.take_definitions(true);
    for (name, schema) in written.take_definitions(true) {
        let before = all.insert(name.clone(), schema.clone());
        assert!(before.is_none_or(|before| before == schema), "two schemas are called {name}");
    }
    all
}

/// A reference to the schema with this name.
fn named(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The document as it is served.
pub(crate) fn document() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let make = || serde_json::to_vec(&build()).expect("a document has text for keys").into();
    DOCUMENT.get_or_init(make).clone()
}

fn build() -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in ROUTES {
        paths.entry(route.path).or_default().insert(route.method.to_lowercase(), describe(route));
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
            "schemas": schemas(),
        },
    })
}

fn describe(route: &Route) -> Value {
    let in_path = |parameter: &&Parameter| route.path.contains(&format!("{{{}}}", parameter.name));
    let mut parameters = Vec::new();
    for parameter in PATH_PARAMETERS.iter().filter(in_path) {
        parameters.push(parameter_in("path", true, parameter));
    }
    for parameter in route.query {
        let is_required = route.requires.contains(&parameter.name);
        parameters.push(parameter_in("query", is_required, parameter));
    }
    for parameter in route.headers {
        parameters.push(parameter_in("header", false, parameter));
    }
    let mut described = json!({
        "operationId": route.id,
        "summary": route.summary,
        "tags": [route.tag],
        "responses": responses(route),
    });
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(body) = request_body(route.request) {
        described["requestBody"] = body;
    }
    described
}

fn parameter_in(place: &str, required: bool, parameter: &Parameter) -> Value {
    let mut described = json!({
        "name": parameter.name,
        "in": place,
        "required": required,
        "description": parameter.text,
        "schema": serde_json::from_str::<Value>(parameter.schema).expect("the table has JSON"),
    });
    if parameter.name == "queue" && place == "query" {
        described["explode"] = true.into();
    }
    described
}

fn request_body(request: Request) -> Option<Value> {
    Some(match request {
        Request::Nothing => return None,
        Request::Raw => json!({
            "description": "The message's body, whatever its bytes. The content type is kept with it",
            "content": {
                "application/octet-stream": { "schema": { "type": "string", "format": "binary" } },
            },
        }),
        Request::Json(schema) => {
            json!({ "required": true, "content": { "application/json": { "schema": named(schema) } } })
        }
        Request::JsonOrQuery(schema) => json!({
            "description": "Fields may come in the query instead, by the same names; not both",
            "content": { "application/json": { "schema": named(schema) } },
        }),
        Request::Items(schema) => {
            let item = named(schema);
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

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    for (status, answer) in route.answers {
        responses.insert(status.to_string(), response(*answer));
    }
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in route.codes() {
        let known = lookup(code).unwrap_or_else(|| panic!("there is no code {code}"));
        by_status.entry(known.status).or_default().push(code);
    }
    let problem = named("Problem");
    for (status, mut codes) in by_status {
        codes.sort_unstable();
        codes.dedup();
        let titles: Vec<String> = codes
            .iter()
            .filter_map(|code| lookup(code))
            .map(|known| format!("{}: {}", known.code, known.title))
            .collect();
        let schema = json!({ "allOf": [problem, { "properties": { "code": { "enum": codes } } }] });
        let mut described = json!({
            "description": titles.join("; "),
            "content": { "application/problem+json": { "schema": schema } },
        });
        if matches!(status, 429 | 503 | 507) {
            let seconds = json!({ "type": "integer", "minimum": 0 });
            described["headers"] = json!({
                "Retry-After": { "description": "Seconds, where it is retryable", "schema": seconds },
            });
        }
        // A status with another meaning too, such as the 503 of health, has both descriptions.
        responses.insert(status.to_string(), described);
    }
    Value::Object(responses)
}

fn response(answer: Answer) -> Value {
    let octets = json!({ "schema": { "type": "string", "format": "binary" } });
    match answer {
        Answer::Json(schema) => {
            json!({ "description": "Done", "content": { "application/json": { "schema": named(schema) } } })
        }
        Answer::Created(schema) => json!({
            "description": "Put",
            "headers": { "Location": { "description": "The message", "schema": { "type": "string" } } },
            "content": { "application/json": { "schema": named(schema) } },
        }),
        Answer::JsonOrRaw(schema) => json!({
            "description": "As JSON, or with `Accept: application/octet-stream` the body alone",
            "content": {
                "application/json": { "schema": named(schema) },
                "application/octet-stream": octets,
            },
        }),
        Answer::Each(schema) => {
            let (done, refused) = (named(&format!("Done{schema}")), named("Refused"));
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
        Answer::Texts(media) => {
            let text = |media: &&str| ((*media).to_owned(), json!({ "schema": { "type": "string" } }));
            let content: Map<String, Value> = media.iter().map(text).collect();
            json!({ "description": "Text", "content": content })
        }
        Answer::Document => {
            json!({ "description": "This document", "content": { "application/json": { "schema": { "type": "object" } } } })
        }
    }
}

#[cfg(test)]
mod tests;
