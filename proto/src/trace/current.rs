//! Trace context of the current task.

use archon_types::TraceContext;
use std::fmt::{self, Display};
use std::sync::OnceLock;
use tokio::task_local;
use tracing::Span;

/// Connects traces of calls with the `tracing` spans of a program, in the way of `tracing-opentelemetry`.
pub trait Tracer: Send + Sync + 'static {
    /// Returns the context of the `tracing` span that is entered now, the parent of new calls.
    fn current(&self) -> Option<TraceContext>;

    /// Adopts a span that has just begun for a remote caller with this context. Only programs that answer calls need
    /// it.
    fn adopt(&self, span: &Span, caller: TraceContext) {
        let _ = (span, caller);
    }
}

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

task_local! {
    static WITHIN: TraceContext;
}

/// Installs the tracer of the process. There is one per process; returns true if it is this one.
pub fn set_tracer(tracer: impl Tracer) -> bool {
    TRACER.set(Box::new(tracer)).is_ok()
}

/// Runs `work` as a part of this trace: its calls pass the context on. Tasks that it starts are not part of it.
pub async fn within<F: Future>(context: TraceContext, work: F) -> F::Output {
    WITHIN.scope(context, work).await
}

/// Returns the current trace context: of the tracer, or else of the innermost [`within`].
pub fn current() -> Option<TraceContext> {
    of_tracer().or_else(|| WITHIN.try_with(|context| *context).ok())
}

fn of_tracer() -> Option<TraceContext> {
    TRACER.get().and_then(|tracer| tracer.current())
}

/// Returns the context of a span that has just begun under `parent`, and records it in the span's fields. `elsewhere`
/// if the parent is no span that is entered now.
pub(super) fn begun(span: &Span, parent: TraceContext, elsewhere: bool) -> TraceContext {
    let own = TRACER.get().and_then(|tracer| {
        if elsewhere || tracer.current().is_none() {
            tracer.adopt(span, parent);
        }
        span.in_scope(|| tracer.current())
    });
    let own = own.unwrap_or_else(|| parent.at(rand::random()));
    span.record("span_id", tracing::field::display(SpanId(own)));
    own
}

/// Formats the trace's number for logs.
pub(super) struct TraceId(pub(super) TraceContext);

impl Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0.trace())
    }
}

/// Formats the span's number for logs.
pub(super) struct SpanId(pub(super) TraceContext);

impl Display for SpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0.span())
    }
}
