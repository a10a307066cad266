//! `GET /openapi.json`: the table of routes as an OpenAPI document, with what each stands behind. It cannot tell of a route that
//! does not exist or leave one out, since it is made of the table itself.

use super::{
    auth::VERSIONS,
    reply::{self, Answer},
    route::{Guard, On, Routes, Row},
};
use checkfu_shared::problem::Code;
use serde_json::{Map, Value, json};

/// The route, which needs no key: the document holds nothing of any workspace.
pub(crate) fn routes() -> Routes {
    Routes::new().get("/openapi.json", Guard::Open, read)
}

async fn read() -> Answer {
    reply::ok(&document(super::routes().rows()))
}

fn document(rows: &[Row]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for row in rows {
        let path = paths.entry(row.path.clone()).or_insert_with(|| json!({}));
        path[row.method.as_str().to_ascii_lowercase()] = operation(row);
    }
    let codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Checkfu", "version": VERSIONS[0]},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "api_key": {"type": "http", "scheme": "bearer", "description": "An API key; `x-api-key` is taken too."},
                "runner_token": {"type": "http", "scheme": "bearer", "description": "A runner's token."},
                "capability": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "A claim's capability."},
            },
            "schemas": {"Problem": problem(&codes)},
        },
    })
}

fn problem(codes: &[&str]) -> Value {
    json!({
        "type": "object",
        "required": ["type", "error", "request_id"],
        "properties": {
            "type": {"const": "error"},
            "request_id": {"type": "string"},
            "error": {
                "type": "object",
                "required": ["type", "message", "details"],
                "properties": {
                    "type": {"type": "string"},
                    "message": {"type": "string"},
                    "details": {"type": "object", "properties": {"error_code": {"enum": codes}}},
                },
            },
        },
    })
}

fn operation(row: &Row) -> Value {
    let refusal = json!({
        "description": "A refusal.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    });
    let mut operation = json!({
        "operationId": name(row),
        "parameters": parameters(&row.path),
        "responses": {"200": {"description": "Done."}, "default": refusal},
        "security": security(row.guard),
    });
    if let Guard::Key(permission, on) = row.guard {
        let (On::All(kind) | On::Named(kind, _) | On::Some(kind)) = on;
        operation["x-permission"] = json!({"permission": permission, "resource_kind": kind});
    }
    operation
}

/// Method and path as one word.
fn name(row: &Row) -> String {
    let path = row.path.trim_start_matches('/').replace(['/', '-', '.'], "_").replace(['{', '}'], "");
    format!("{}_{path}", row.method.as_str().to_ascii_lowercase())
}

fn parameters(path: &str) -> Vec<Value> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect()
}

fn security(guard: Guard) -> Value {
    match guard {
        Guard::Open => json!([]),
        Guard::AnyKey | Guard::Key(..) => json!([{"api_key": []}]),
        Guard::Runner => json!([{"runner_token": []}]),
        Guard::Capability => json!([{"capability": []}]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_told_once_with_its_parameters_and_what_it_stands_behind() {
        let routes = super::super::routes();
        let document = document(routes.rows());
        let mut names = BTreeSet::new();
        for row in routes.rows() {
            let method = row.method.as_str().to_ascii_lowercase();
            let told = &document["paths"][&row.path][&method];
            assert!(
                names.insert(told["operationId"].as_str().unwrap().to_owned()),
                "{row:?} has another's name"
            );
            assert_eq!(
                told["parameters"].as_array().unwrap().len(),
                row.path.matches('{').count(),
                "{row:?}"
            );
            assert_eq!(told["security"] == json!([]), row.guard == Guard::Open, "{row:?}");
        }
        let agents = &document["paths"]["/v1/agents"]["post"];
        assert_eq!(agents["x-permission"], json!({"permission": "write", "resource_kind": "agent"}));
    }
}
