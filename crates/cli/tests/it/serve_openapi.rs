//! The OpenAPI description of `outlast serve`, and whether it is correct.

use crate::serve_driver::Serve;
use crate::support::Outlast;
use serde_json::{Value, json};

/// Returns each operation of the description: its method, path, name, and responses.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, operation)| {
            (method.to_uppercase(), path.clone(), operation.clone())
        })
    });
    all.collect()
}

#[test]
fn openapi_document_is_printed_and_served_identically() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok");
    let ran = outlast.run(&["serve", "--openapi"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    let answer = server.ask("GET", "/api/openapi.json").send();
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.value(), printed);
    assert_eq!(printed["openapi"], "3.1.0");
    let mut names = Vec::new();
    let lines = operations(&printed)
        .into_iter()
        .map(|(method, path, operation)| {
            let name = operation["operationId"].as_str().unwrap().to_owned();
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{name}");
            names.push(name.clone());
            format!("{method:5} {path} {name}\n")
        });
    let lines: String = lines.collect();
    insta::assert_snapshot!(lines);
    let old = &printed["paths"]["/api/knowledge"]["get"];
    assert_eq!(old["deprecated"], true, "{old}");
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "each has a name of its own");
}

#[test]
fn every_openapi_reference_resolves() {
    fn walk<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| walk(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let ran = Outlast::new().run(&["serve", "--openapi"]);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let mut found = Vec::new();
    walk(&document, &mut found);
    assert!(found.len() > 50, "{}", found.len());
    for reference in found {
        let place = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(place).is_some(), "{reference}");
    }
}

#[test]
fn openapi_component_names_do_not_collide() {
    let ran = Outlast::new().run(&["serve", "--openapi"]);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let components = document["components"]["schemas"].as_object().unwrap();
    // The generator appends a number to the second of two types with the same name.
    let is_numbered = |name: &&String| name.ends_with(|last: char| last.is_ascii_digit());
    let numbered: Vec<_> = components.keys().filter(is_numbered).collect();
    assert!(numbered.is_empty(), "{numbered:?}");
    let names: Vec<_> = components.keys().map(String::as_str).collect();
    insta::assert_snapshot!(names.join("\n"));
}

#[test]
fn every_openapi_operation_exists() {
    let outlast = Outlast::new();
    let server = Serve::start(&outlast, "ok");
    let nobody = "01900000-0000-7000-8000-000000000001";
    for (method, path, operation) in operations(&server.get("/api/openapi.json")) {
        let method = ["GET", "POST", "PATCH"]
            .into_iter()
            .find(|it| *it == method)
            .unwrap();
        let real = path.replace("{id}", nobody).replace("{port}", "1");
        let body = &operation["requestBody"];
        let ask = match body.is_null() {
            true => server.ask(method, &real),
            false => server.ask(method, &real).json(&json!({})),
        };
        let answer = ask.send();
        let status = answer.status;
        if (200..300).contains(&status) {
            assert!(
                operation["responses"][status.to_string()].is_object(),
                "{method} {path}: {status}"
            );
            continue;
        }
        let (_, code, detail) = answer.problem();
        let expected = if body["required"] == true {
            ["invalid_value"]
        } else {
            ["not_found"]
        };
        assert!(
            expected.contains(&&*code),
            "{method} {path}: {status} {code} {detail}"
        );
        assert!(!detail.contains("there is nothing here"), "{method} {path}");
    }
}
