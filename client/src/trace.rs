//! Tracing: calls that a client makes for a traced program include its W3C trace context.
//!
//! Calls within [`within`] are part of that trace: administration, routes and tables, and
//! [`crate::Client::get_stale`]. Operations that share streams are not: their messages contain operations of many
//! callers. Nodes and coordinators open `tracing` spans for calls with a trace context, so that their log lines
//! contain it; so does this library, with the target [`TARGET`].
//!
//! A program that uses the spans of `tracing-opentelemetry` does not have to pass the context with each call. It
//! registers a [`Tracer`] that returns its context, and spans of this library are exported with its own:
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
