//! Trace context of calls: received with incoming calls, passed on with the outgoing calls made for them.
//!
//! A call is part of a trace if it has the header `traceparent`; any other call only costs the lookup of that header. A
//! call of a trace gets a `tracing` span with the target [`TARGET`], whose fields `trace_id`, `span_id` and `parent_id`
//! appear in each line logged under it. This module exports no spans: a [`Tracer`] connects its spans with those of the
//! program.

/// Creates a span of a call, on either side, with the fields for logs and collectors. Its numbers are those of the
/// parent until it has begun.
macro_rules! span_of_call {
    ($name:literal, $kind:literal, $service:expr, $method:expr, $parent:expr $(, $later:ident)*) => {
        tracing::info_span!(
            target: $crate::trace::TARGET,
            $name,
            otel.kind = $kind,
            otel.name = %format_args!("{}/{}", $service, $method),
            service = $service,
            method = $method,
            trace_id = %$crate::trace::current::TraceId($parent),
            parent_id = %$crate::trace::current::SpanId($parent),
            span_id = tracing::field::Empty,
            $($later = tracing::field::Empty,)*
        )
    };
}

mod channel;
mod current;
mod serve;

pub use archon_types::{TRACEPARENT, TraceContext};
pub use channel::TracedChannel;
pub use current::{Tracer, current, set_tracer, within};
pub use serve::{RequestSpan, TraceLayer, TracedService, of_header};

/// Target of the spans of traced calls.
pub const TARGET: &str = "archon::trace";

/// Splits a gRPC path, `/archon.v1.Admin/Status`, into the service and the method; any other path is the method as a
/// whole.
fn parts(path: &str) -> (&str, &str) {
    path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).unwrap_or(("", path))
}
