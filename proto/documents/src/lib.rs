//! Administrative documents: every request and answer of the administration, declared once, and the table of its methods.
//!
//! A document is a struct with serde and a JSON schema. The same struct is what `archon … -o json` prints, what the HTTP API answers,
//! what travels between client and coordinator (as JSON in one generic gRPC call), and what the client returns.
//! [`METHODS`] lists every method with its right, its effect and the commands that call it (ADR 0089).
//!
//! Rules for changes, so that versions mix during an upgrade:
//! - Readers of answers, and of requests that only read, ignore unknown fields. Requests that change something are refused for them.
//! - A field that is added to a document later has `#[serde(default)]`, or is an `Option`.
//! - A field is never renamed, and its meaning never changes; a new field replaces it.
//! - Vocabularies are [`OpenEnum`](archon_types::OpenEnum)s, which keep words of a newer version.

mod access;
mod codec;
mod findings;
mod method;
mod methods;
mod nodes;
mod orders;
mod owners;
mod partitions;
mod quorum;
mod rebalance;
#[cfg(test)]
mod schema_tests;
mod settings;
mod status;
mod tables;
mod upgrade;

pub use access::*;
pub use codec::{ANSWER_BYTES_MAX, read_answer, read_request, write};
pub use findings::{Reason, coordinators, waits_for};
pub use method::{Callers, Document, Effect, Method, MethodCall};
pub use methods::{METHODS, SERVICE, method_at};
pub use nodes::*;
pub use orders::*;
pub use owners::*;
pub use partitions::*;
pub use quorum::*;
pub use rebalance::*;
pub use settings::*;
pub use status::*;
pub use tables::*;
pub use upgrade::*;
