//! Traces: calls that a client makes for a program that is traced carry its W3C trace context.
//!
//! What is called within [`within`] is part of that trace: administration, routes and tables, and [`crate::Client::get_stale`]. Operations
//! that share streams are not: their messages carry operations of many callers. Nodes and coordinators open `tracing` spans for calls
//! that say a trace, so that their log lines name it; so does this library, with the target [`TARGET`].
//!
//! A program whose spans are those of `tracing-opentelemetry` need not say anything at each call. It says once how its context is found,
//! and spans of this library are exported with its own:
//!
//! ```ignore
//! use archon_client::trace::{TraceContext, Tracer, set_tracer};
//! use opentelemetry::trace::TraceContextExt as _;
//! use tracing_opentelemetry::OpenTelemetrySpanExt as _;
//!
//! struct OpenTelemetry;
//!
//! impl Tracer for OpenTelemetry {
//!     fn current(&self) -> Option<TraceContext> {
//!         let context = tracing::Span::current().context();
//!         let span = context.span().span_context().clone();
//!         let (trace, number) = (span.trace_id().to_bytes(), span.span_id().to_bytes());
//!         TraceContext::new(u128::from_be_bytes(trace), u64::from_be_bytes(number), span.is_sampled())
//!     }
//! }
//!
//! set_tracer(OpenTelemetry);
//! ```

pub use archon_proto::trace::{
    RequestSpan, TARGET, TRACEPARENT, TraceContext, Tracer, current, of_header, set_tracer, within,
};
