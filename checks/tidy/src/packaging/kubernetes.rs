//! Kubernetes manifests.

use super::{Member, text, texts, yaml};
use serde_json::Value;

/// Manifests of a cluster in plaintext.
pub const BASE: &str = "packaging/kubernetes/base";
/// Patches of these manifests for TLS.
pub const TLS: &str = "packaging/kubernetes/tls";
/// Kinds of members, each a file and a stateful set.
pub const KINDS: [&str; 2] = ["coordinator", "node"];

/// Returns the single document of a kind.
///
/// # Panics
/// If there is none, or more than one.
#[must_use]
#[track_caller]
pub fn document(path: &str, kind: &str) -> Value {
    let mut found: Vec<Value> = yaml(path).into_iter().filter(|document| document["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{path}: {kind}");
    found.remove(0)
}

/// Returns the stateful set of a kind of members.
///
/// # Panics
/// If there is none.
#[must_use]
#[track_caller]
pub fn set(kind: &str) -> Value {
    document(&format!("{BASE}/{kind}.yaml"), "StatefulSet")
}

/// Returns the TLS patch for the stateful set of a kind of members.
///
/// # Panics
/// If there is none.
#[must_use]
#[track_caller]
pub fn tls_patch(kind: &str) -> Value {
    document(&format!("{TLS}/{kind}.yaml"), "StatefulSet")
}

/// Returns the single container of a stateful set.
///
/// # Panics
/// If there is none, or more than one.
#[must_use]
#[track_caller]
pub fn container(set: &Value) -> &Value {
    let containers = set["spec"]["template"]["spec"]["containers"].as_array().expect("containers");
    assert_eq!(containers.len(), 1);
    &containers[0]
}

/// Returns the variables of a container. A value that Kubernetes fills in is represented by its path.
///
/// # Panics
/// If the list has another form.
#[must_use]
pub fn variables(container: &Value) -> Vec<(String, String)> {
    let variables = container["env"].as_array().expect("variables").iter();
    let variables = variables.filter(|variable| variable["$patch"] != "delete").map(|variable| {
        let value = variable.get("value").unwrap_or(&variable["valueFrom"]["fieldRef"]["fieldPath"]);
        (text(&variable["name"]).to_owned(), text(value).to_owned())
    });
    variables.collect()
}

/// Returns a kind of members, as its pods start it.
///
/// # Panics
/// If the manifest has another form.
#[must_use]
pub fn member(kind: &str) -> Member {
    let set = set(kind);
    let container = container(&set);
    Member { place: format!("{BASE}/{kind}.yaml"), words: texts(&container["args"]), variables: variables(container) }
}
