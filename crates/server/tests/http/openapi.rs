//! `/openapi.json`: that the server conforms to it. [`check`] compares every answer in the tests of this folder with
//! the document; the rest is here.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::sync::OnceCell;

use crate::support::{Answer, Connection, Running, start};

/// The document, fetched once.
async fn document(server: &Running) -> &'static Value {
    static DOCUMENT: OnceCell<Value> = OnceCell::const_new();
    DOCUMENT
        .get_or_init(async || {
            let mut connection = Connection::open(server.address).await;
            connection.request("GET", "/openapi.json", &[], b"").await;
            let answer = connection.answer().await;
            assert_eq!(answer.status, 200, "{answer:?}");
            answer.json()
        })
        .await
}

/// Panics if the answer to a request is not among those that the document lists for it, in status, content type,
/// code or shape.
pub(crate) async fn check(server: &Running, method: &str, target: &str, answer: &Answer) {
    let document = document(server).await;
    let path = target.split('?').next().unwrap();
    if !path.starts_with('/') {
        // The absolute form that proxies receive, which the document does not describe.
        return;
    }
    let Some(template) = template_of(document, path) else {
        assert_eq!(answer.problem().1, "unknown_route", "{target} is not in the document");
        return;
    };
    let Some(operation) = document["paths"][template].get(method.to_lowercase()) else {
        // A HEAD is a GET without its body, and has no description.
        if method != "HEAD" && answer.status != 405 {
            assert!(
                [401, 403].contains(&answer.status),
                "{method} {template} is not in the document: {answer:?}"
            );
        }
        return;
    };
    let whole = format!("{method} {template}: {answer:?}");
    let response = operation["responses"].get(answer.status.to_string());
    let response = response.unwrap_or_else(|| panic!("this status is not in the document: {whole}"));
    let Some(content) = response.get("content") else {
        assert!(answer.body.is_empty(), "{whole}");
        return;
    };
    let given = answer.header("content-type").unwrap_or_default().split(';').next().unwrap().to_owned();
    let Some(media) = content.get(&given) else {
        // A raw answer has the message's own content type.
        assert!(content.get("application/octet-stream").is_some(), "content type: {whole}");
        return;
    };
    let fit = match given.as_str() {
        "application/json" | "application/problem+json" => fits(document, &media["schema"], &answer.json()),
        "application/x-ndjson" => {
            let item = &content["application/json"]["schema"]["properties"]["answers"]["items"];
            answer.lines().iter().try_for_each(|line| fits(document, item, line))
        }
        _ => Ok(()),
    };
    if let Err(why) = fit {
        panic!("{why}: {whole}");
    }
}

/// The template that matches a path, and of several the one with the most fixed segments.
fn template_of<'a>(document: &'a Value, path: &str) -> Option<&'a str> {
    let segments: Vec<&str> = path.split('/').collect();
    let is_open = |segment: &str| segment.starts_with('{');
    let templates = document["paths"].as_object().unwrap().keys().filter(|template| {
        let parts: Vec<&str> = template.split('/').collect();
        parts.len() == segments.len()
            && parts
                .iter()
                .zip(&segments)
                .all(|(part, segment)| if is_open(part) { !segment.is_empty() } else { part == segment })
    });
    let fixed = |template: &&String| template.split('/').filter(|part| !is_open(part)).count();
    templates.max_by_key(fixed).map(String::as_str)
}

/// Whether a value matches a schema, for those keywords of JSON Schema that the document uses.
fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(words) = schema.as_object() else {
        return if *schema == Value::Bool(true) { Ok(()) } else { Err("nothing fits".to_owned()) };
    };
    for (word, rule) in words {
        match word.as_str() {
            "$ref" => {
                let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
                fits(document, document.pointer(pointer).unwrap(), value)?;
            }
            "allOf" => rule.as_array().unwrap().iter().try_for_each(|rule| fits(document, rule, value))?,
            "anyOf" | "oneOf" => {
                let tried: Vec<_> =
                    rule.as_array().unwrap().iter().map(|rule| fits(document, rule, value)).collect();
                if tried.iter().all(Result::is_err) {
                    return Err(format!("{value} fits none: {tried:?}"));
                }
            }
            "type" => {
                let types: Vec<&str> = match rule {
                    Value::Array(types) => types.iter().map(|rule| rule.as_str().unwrap()).collect(),
                    one => vec![one.as_str().unwrap()],
                };
                let is = |name: &&str| match *name {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "number" => value.is_number(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                if !types.iter().any(is) {
                    return Err(format!("{value} is no {types:?}"));
                }
            }
            "enum" if !rule.as_array().unwrap().contains(value) => {
                return Err(format!("{value} is none of {rule}"));
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
                        return Err(format!("{name} is missing in {value}"));
                    }
                }
            }
            "properties" => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(name) {
                        fits(document, rule, value).map_err(|why| format!("{name}: {why}"))?;
                    }
                }
                // Every field of an answer is described.
                let composed = ["allOf", "anyOf", "$ref"].iter().any(|word| words.contains_key(*word));
                let is_part = !words.contains_key("type");
                for name in value.as_object().into_iter().flat_map(|fields| fields.keys()) {
                    if rule.get(name).is_none() && !composed && !is_part {
                        return Err(format!("{name} is not described"));
                    }
                }
            }
            "additionalProperties" if rule.is_object() => {
                for value in value.as_object().into_iter().flat_map(|fields| fields.values()) {
                    fits(document, rule, value)?;
                }
            }
            "items" => {
                for value in value.as_array().into_iter().flatten() {
                    fits(document, rule, value)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[tokio::test]
async fn is_a_document_of_openapi_3_1() {
    let server = start().await;
    let answer = server.get("/openapi.json").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"].as_object().unwrap().len() > 25);
    server.stop().await;
}

/// With an unknown parameter, each route lists the parameters that it knows: the same as the document's.
#[tokio::test]
async fn handlers_know_the_parameters_that_are_described() {
    let server = start().await;
    server.put("?key=k", b"x").await;
    let receipt = server.take("").await["receipt"].as_str().unwrap().to_owned();
    let id = server.put("?delay=1h", b"y").await["id"].as_str().unwrap().to_owned();
    let document = document(&server).await;
    let mut asked = 0;
    for (template, methods) in document["paths"].as_object().unwrap() {
        let target = template
            .replace("{queue}", "q")
            .replace("{id}", &id)
            .replace("{key}", "k")
            .replace("{number}", "1")
            .replace("{receipt}", &receipt)
            .replace("{action}", "retry")
            .replace("{code}", "leased");
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let in_query = parameters.filter(|parameter| parameter["in"] == "query");
            let described: BTreeSet<&str> =
                in_query.clone().map(|parameter| parameter["name"].as_str().unwrap()).collect();
            let mut query = "nobody_knows=1".to_owned();
            for parameter in in_query.filter(|parameter| parameter["required"] == true) {
                query += &format!("&{}=q", parameter["name"].as_str().unwrap());
            }
            let answer = server.send(&method.to_uppercase(), &format!("{target}?{query}"), &[], b"").await;
            let takes_json = operation["requestBody"]["required"] == true;
            assert_eq!(answer.problem().1, "unknown_parameter", "{method} {target} ({takes_json})");
            let detail = answer.json()["detail"].as_str().unwrap().to_owned();
            let known = detail.split("known are: ").nth(1).unwrap();
            let known: BTreeSet<&str> = known.split(", ").filter(|name| *name != "none").collect();
            assert_eq!(known, described, "{method} {template}");
            asked += 1;
        }
    }
    assert!(asked > 35, "{asked}");
    server.stop().await;
}

/// A method that a path does not have is refused, and `Allow` lists those that it has: the document's.
#[tokio::test]
async fn paths_have_the_methods_that_are_described() {
    let server = start().await;
    let document = document(&server).await;
    for (template, methods) in document["paths"].as_object().unwrap() {
        let target = template.replace(['{', '}'], "");
        let answer = server.send("OPTIONS", &target, &[], b"").await;
        assert_eq!(answer.problem(), (405, "method_not_allowed".to_owned()), "{target}");
        let allowed: BTreeSet<String> = answer
            .header("allow")
            .unwrap()
            .split(',')
            .map(|method| method.trim().to_lowercase())
            .filter(|method| method != "head")
            .collect();
        let described: BTreeSet<String> = methods.as_object().unwrap().keys().cloned().collect();
        assert_eq!(allowed, described, "{template}");
    }
    server.stop().await;
}
