//! Registration of operations, with routes and descriptions.

use super::operation::{Answers, Description};
use crate::api::console_state::ConsoleState;
use crate::error::ErrorAnswer;
use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodFilter, on};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Path prefix of this version of the interface.
const BASE: &str = "/api/v1";

/// The registered operations.
pub(super) struct Operations {
    router: Router<ConsoleState>,
    generator: SchemaGenerator,
    paths: Map<String, Value>,
}

macro_rules! methods {
    ($($name:ident: $filter:ident, $changes:literal;)*) => {
        $(
            /// Adds an operation with this method.
            pub(super) fn $name<H, T, A>(self, path: &str, does: &str, handler: H) -> Self
            where
                H: Handler<T, ConsoleState> + Answers<A>,
                T: 'static,
            {
                self.add(MethodFilter::$filter, stringify!($name), $changes, path, does, handler)
            }
        )*
    };
}

impl Operations {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        // OpenAPI 3.1 uses JSON Schema, with definitions at this path.
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self { router: Router::new(), generator: settings.into_generator(), paths: Map::new() }
    }

    methods! {
        get: GET, false;
        post: POST, true;
        put: PUT, true;
        delete: DELETE, true;
    }

    fn add<H, T, A>(
        mut self,
        method: MethodFilter,
        name: &str,
        changes: bool,
        path: &str,
        does: &str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, ConsoleState> + Answers<A>,
        T: 'static,
    {
        let operation = Description::of(&handler, &mut self.generator).operation(does, changes);
        let path = format!("{BASE}{path}");
        let of_path = self.paths.entry(path.clone()).or_insert_with(|| json!({}));
        of_path[name] = operation;
        self.router = self.router.route(&path, on(method, handler));
        self
    }

    /// Returns the router and the description.
    pub(super) fn into_parts(mut self) -> (Router<ConsoleState>, Value) {
        self.generator.subschema_for::<ErrorAnswer>();
        let description = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Archon",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "HTTP interface of the console of a coordinator. Documents are those of `archon … -o \
                 json`. With TLS, the role in the client certificate determines the permitted operations.",
            },
            "paths": self.paths,
            "components": { "schemas": self.generator.take_definitions(true) },
        });
        (self.router, description)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn all_references_are_defined() {
        let description = super::super::description();
        let text = description.to_string();
        let references: BTreeSet<&str> =
            text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let known = description["components"]["schemas"].as_object().expect("schemas");
        let lacking: Vec<_> = references.iter().filter(|name| !known.contains_key(**name)).collect();
        assert!(lacking.is_empty() && references.len() > 20, "{lacking:?} of {}", references.len());
    }

    #[test]
    fn description_of_rows_matches_the_server() {
        let description = super::super::description();
        let row = &description["paths"]["/api/v1/rows/{table}/{key}"];
        let headers = |method: &str| -> BTreeSet<&str> {
            let all = row[method]["parameters"].as_array().into_iter().flatten();
            let names = all.filter(|one| one["in"] == "header").filter_map(|one| one["name"].as_str());
            names.filter(|name| *name != crate::guard::HEADER).collect()
        };
        let name = ["Archon-Operation", "Archon-Stamp-Ms"];
        let of_put = BTreeSet::from(["If-Match", "If-None-Match", "Archon-TTL-Ms"]);
        assert_eq!(headers("put"), of_put.into_iter().chain(name).collect());
        assert_eq!((headers("get"), headers("delete")), (["If-None-Match"].into(), name.into()));
        let answers = |method: &str| -> Vec<&str> {
            row[method]["responses"].as_object().into_iter().flatten().map(|(status, _)| status.as_str()).collect()
        };
        assert_eq!(answers("get"), ["200", "304", "404", "default"]);
        assert_eq!(answers("put"), ["200", "404", "412", "413", "default"]);
        assert_eq!(answers("delete"), ["200", "404", "default"]);
        let value = &row["put"]["requestBody"]["content"]["application/octet-stream"]["schema"];
        assert_eq!(value["maxLength"], archon_types::limits::VALUE_BYTES_MAX);
        let key = row["get"]["parameters"].as_array().into_iter().flatten().find(|one| one["name"] == "key");
        assert_eq!(key.expect("a key")["schema"]["maxLength"], archon_types::limits::KEY_BYTES_MAX);
    }

    #[test]
    fn changes_need_the_header_and_paths_name_parameters() {
        let description = super::super::description();
        for (path, operations) in description["paths"].as_object().expect("paths") {
            for (method, operation) in operations.as_object().expect("operations") {
                let named = |place: &str| -> BTreeSet<&str> {
                    let all = operation["parameters"].as_array().into_iter().flatten();
                    all.filter(|one| one["in"] == place).filter_map(|one| one["name"].as_str()).collect()
                };
                assert_eq!(named("header").contains(crate::guard::HEADER), method != "get", "{method} {path}");
                let in_path: BTreeSet<&str> =
                    path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
                assert_eq!(named("path"), in_path, "{method} {path}");
            }
        }
    }
}
