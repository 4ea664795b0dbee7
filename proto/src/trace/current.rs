//! Of which trace what happens now is a part.

use archon_types::TraceContext;
use std::fmt::{self, Display};
use std::sync::OnceLock;
use tokio::task_local;
use tracing::Span;

/// Connects traces of calls with the `tracing` spans of a program, as `tracing-opentelemetry` has them.
pub trait Tracer: Send + Sync + 'static {
    /// The context of the `tracing` span that is entered now: what is called now is its child.
    fn current(&self) -> Option<TraceContext>;

    /// A span has just begun on behalf of somebody elsewhere, whose context this is. Only programs that answer calls need it.
    fn adopt(&self, span: &Span, caller: TraceContext) {
        let _ = (span, caller);
    }
}

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

task_local! {
    static WITHIN: TraceContext;
}

/// Has this tracer asked from now on. There is one per process; returns whether it is this one.
pub fn set_tracer(tracer: impl Tracer) -> bool {
    TRACER.set(Box::new(tracer)).is_ok()
}

/// Runs `work` as a part of this trace: the calls that it makes pass the context on. Tasks that it starts are not part of it.
pub async fn within<F: Future>(context: TraceContext, work: F) -> F::Output {
    WITHIN.scope(context, work).await
}

/// Of which trace what happens now is a part: as the tracer says, or else the innermost [`within`].
pub fn current() -> Option<TraceContext> {
    of_tracer().or_else(|| WITHIN.try_with(|context| *context).ok())
}

fn of_tracer() -> Option<TraceContext> {
    TRACER.get().and_then(|tracer| tracer.current())
}

/// The context of a span that has just begun under `parent`, which is written into its fields. `elsewhere` if the parent is no span
/// that is entered now.
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

/// The trace's number as logs show it.
pub(super) struct TraceId(pub(super) TraceContext);

impl Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0.trace())
    }
}

/// The span's number as logs show it.
pub(super) struct SpanId(pub(super) TraceContext);

impl Display for SpanId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0.span())
    }
}
