//! Trace context of calls: taken from those that come, passed on with those that are made meanwhile.
//!
//! A call is part of a trace if whoever made it says so in the header `traceparent`; of every other call nothing is kept and nothing
//! costs more than to look for that header. A call of a trace gets a `tracing` span with the target [`TARGET`], whose fields
//! `trace_id`, `span_id` and `parent_id` stand in each line that is logged under it. Who exports spans is not decided here: a
//! [`Tracer`] connects those here with the spans of whatever the program has.

/// A span of a call, on either side of it, with the fields that logs and collectors know it by. Its numbers are those of the parent,
/// until it has begun.
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
pub use serve::{RequestSpan, Traced, TracedService, of_header};

/// The target of the spans that calls of traces have.
pub const TARGET: &str = "archon::trace";

/// The service and the method of a path of gRPC, `/archon.v1.Admin/Status`; of any other path all of it is the method.
fn parts(path: &str) -> (&str, &str) {
    path.strip_prefix('/').and_then(|path| path.rsplit_once('/')).unwrap_or(("", path))
}
