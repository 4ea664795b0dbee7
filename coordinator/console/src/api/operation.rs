//! OpenAPI descriptions of operations, derived from the types of their handlers, so that they always match.

use super::asker::Asker;
use super::extract::{Body, KnownTag, Octets, Path, Query, RequestName, UnconditionalRequest};
use crate::error::ApiError;
use archon_types::limits::VALUE_BYTES_MAX;
use axum::Json;
use axum::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

/// Description of an operation.
#[derive(Default)]
pub(super) struct Description {
    parameters: Vec<Value>,
    body: Option<Value>,
    answer: Option<Value>,
    /// Set if the caller may have the answer already.
    may_be_known: bool,
}

impl Description {
    /// Derives the description from a handler.
    pub(super) fn of<Takes, F: Answers<Takes>>(_: &F, generator: &mut SchemaGenerator) -> Self {
        let mut description = Self::default();
        F::describe(generator, &mut description);
        description
    }

    /// Returns the OpenAPI object, with the purpose `does`; `changes` marks operations that change something.
    pub(super) fn operation(self, does: &str, changes: bool) -> Value {
        let mut parameters = self.parameters;
        if changes {
            parameters.push(json!({
                "name": crate::guard::HEADER, "in": "header", "required": true, "schema": { "const": "1" },
                "description": "Proves that the request does not come from a page of another site.",
            }));
        }
        let mut operation = json!({
            "summary": does,
            "parameters": parameters,
            "responses": {
                "200": { "description": "Success.", "content": self.answer },
                "default": failure("The request failed; the body has the reason."),
            },
        });
        let has_parameter = |place: &str, name: &str| {
            let mut all = operation["parameters"].as_array().into_iter().flatten();
            all.any(|parameter| parameter["in"] == place && (name.is_empty() || parameter["name"] == name))
        };
        let mut failures = Vec::new();
        if has_parameter("path", "") {
            failures.push(("404", "The object does not exist."));
        }
        if has_parameter("header", "If-Match") {
            failures.push(("412", "The condition does not hold."));
        }
        if let Some(body) = self.body {
            failures.push(("413", "The body is too large."));
            if body.get("application/json").is_some() {
                failures.push(("415", "The body is not declared as JSON."));
            }
            operation["requestBody"] = json!({ "required": true, "content": body });
        }
        if self.may_be_known {
            operation["responses"]["304"] = json!({ "description": "The caller has this value." });
        }
        for (status, means) in failures {
            operation["responses"][status] = failure(means);
        }
        operation
    }

    /// Adds optional headers, each with its description.
    fn add_headers(&mut self, headers: &[(&str, &str)]) {
        for (name, says) in headers {
            let schema = json!({ "type": "string" });
            self.parameters.push(json!({ "name": name, "in": "header", "schema": schema, "description": says }));
        }
    }

    /// Adds each field of a type as a parameter.
    fn add_parameters(&mut self, place: &str, of: &Schema) {
        let of = of.as_value();
        let required: Vec<&str> = of["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, schema) in of["properties"].as_object().into_iter().flatten() {
            self.parameters.push(json!({
                "name": name, "in": place, "required": place == "path" || required.contains(&&**name),
                "schema": schema, "description": schema["description"],
            }));
        }
    }
}

/// Returns the description of an error answer.
fn failure(means: &str) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/ErrorAnswer" });
    json!({ "description": means, "content": { "application/json": { "schema": schema } } })
}

/// A handler of an operation.
pub(super) trait Answers<Takes> {
    fn describe(generator: &mut SchemaGenerator, description: &mut Description);
}

/// An argument of a handler.
pub(super) trait HandlerArgument {
    fn describe(generator: &mut SchemaGenerator, description: &mut Description);
}

/// A result of a handler.
pub(super) trait HandlerResult {
    fn describe(generator: &mut SchemaGenerator) -> Value;
}

macro_rules! answers {
    ($($taken:ident),*) => {
        impl<F, Answering, Answer, $($taken),*> Answers<(Answer, $($taken),*)> for F
        where
            F: Fn($($taken),*) -> Answering,
            Answering: Future<Output = Result<Answer, ApiError>>,
            Answer: HandlerResult,
            $($taken: HandlerArgument),*
        {
            fn describe(generator: &mut SchemaGenerator, description: &mut Description) {
                $($taken::describe(generator, description);)*
                description.answer = Some(Answer::describe(generator));
            }
        }
    };
}

answers!(A);
answers!(A, B);
answers!(A, B, C);
answers!(A, B, C, D);

impl HandlerArgument for Asker {
    fn describe(_: &mut SchemaGenerator, _: &mut Description) {}
}

impl<T: JsonSchema> HandlerArgument for Path<T> {
    fn describe(generator: &mut SchemaGenerator, description: &mut Description) {
        description.add_parameters("path", &T::json_schema(generator));
    }
}

impl<T: JsonSchema> HandlerArgument for Query<T> {
    fn describe(generator: &mut SchemaGenerator, description: &mut Description) {
        description.add_parameters("query", &T::json_schema(generator));
    }
}

impl<T: JsonSchema> HandlerArgument for Body<T> {
    fn describe(generator: &mut SchemaGenerator, description: &mut Description) {
        description.body = Some(in_json::<T>(generator));
    }
}

/// The raw value of a row.
impl HandlerArgument for Octets {
    fn describe(_: &mut SchemaGenerator, description: &mut Description) {
        let value = json!({ "type": "string", "format": "binary", "maxLength": VALUE_BYTES_MAX });
        description.body = Some(json!({ "application/octet-stream": { "schema": value } }));
    }
}

/// Allows the caller to skip a known value.
impl HandlerArgument for KnownTag {
    fn describe(_: &mut SchemaGenerator, description: &mut Description) {
        let says = "The ETag of a value that the caller has; the answer is 304 if it is still current.";
        let schema = json!({ "type": "string" });
        let parameter = json!({ "name": "If-None-Match", "in": "header", "schema": schema, "description": says });
        description.parameters.push(parameter);
        description.may_be_known = true;
    }
}

/// Conditions are rejected, so the description has none.
impl HandlerArgument for UnconditionalRequest {
    fn describe(_: &mut SchemaGenerator, _: &mut Description) {}
}

/// Only the headers for rows are relevant.
impl HandlerArgument for HeaderMap {
    fn describe(_: &mut SchemaGenerator, description: &mut Description) {
        description.add_headers(&[
            ("If-Match", "The required ETag of the current value."),
            ("If-None-Match", "`*`: the key must not exist."),
            ("Archon-TTL-Ms", "Milliseconds after which the value expires."),
        ]);
        description.add_headers(&NAME_HEADERS);
    }
}

/// Names a write, so that its repetition has no second effect.
impl HandlerArgument for RequestName {
    fn describe(_: &mut SchemaGenerator, description: &mut Description) {
        description.add_headers(&NAME_HEADERS);
    }
}

/// The headers with the name of a write.
const NAME_HEADERS: [(&str, &str); 2] = [
    ("Archon-Operation", "`CLIENT/NUMBER`: the name of the write, so that its repetition has no second effect."),
    (
        "Archon-Stamp-Ms",
        "That of a read before the first attempt, or of the answer before; 0: sent before, without an answer.",
    ),
];

impl<T: JsonSchema> HandlerResult for Json<T> {
    fn describe(generator: &mut SchemaGenerator) -> Value {
        in_json::<T>(generator)
    }
}

impl<const N: usize, T: HandlerResult> HandlerResult for ([(HeaderName, String); N], T) {
    fn describe(generator: &mut SchemaGenerator) -> Value {
        T::describe(generator)
    }
}

impl HandlerResult for Bytes {
    fn describe(_: &mut SchemaGenerator) -> Value {
        octets()
    }
}

fn in_json<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    json!({ "application/json": { "schema": generator.subschema_for::<T>() } })
}

fn octets() -> Value {
    json!({ "application/octet-stream": {} })
}
