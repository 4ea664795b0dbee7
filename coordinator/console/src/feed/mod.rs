//! Server-sent events for the page: each connection gets all sections once, then the changes. The cluster is polled once a second for all
//! open pages together. Without an open page only the load is measured, every five seconds.

pub(crate) mod latest_state;
mod load;
mod map;
mod members;
mod poller;
mod quorum;
mod state_section;

use crate::api::console_state::ConsoleState;
use crate::error::ApiError;
use crate::feed::state_section::StateSection;
use archon_security::{CallPermit, Caller, callers};
use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
pub(crate) use poller::record;
pub(crate) use quorum::{CoordinatorView, quorum_of};
use serde_json::json;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// Interval of keepalives, so that proxies keep the connection open.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// Delay before a browser reconnects.
const RETRY: Duration = Duration::from_secs(1);

/// Serves one feed.
pub(crate) async fn serve(
    State(shared): State<ConsoleState>,
    Extension(caller): Extension<Caller>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let encrypted = shared.is_encrypted();
    crate::guard::check_role(&caller, "/archon.v1.Admin/Status", encrypted)?;
    let place = shared.cluster.feeds.enter(&caller);
    let place = place
        .map_err(|detail| ApiError::overloaded(&detail, "close a page, or use the console of another coordinator"))?;
    let feed = &shared.cluster.feed;
    let changes = callers("/archon.v1.Admin/SetNode");
    let hello = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "served_by": shared.cluster.config.coordinators.first(),
        "identity": caller.identity.as_ref().map(ToString::to_string),
        "may_change": caller.identity.as_ref().map_or(!encrypted, |identity| changes.contains(&identity.role())),
    });
    let (now, later) = feed.watch();
    if feed.begin() {
        tokio::spawn(poller::poll(Arc::clone(&shared.cluster), shared.stop.clone()));
    }
    let hello = StateSection::new("hello", &hello);
    let waiting = [vec![hello.clone()], now].concat().into();
    let watching = Subscription { cluster: Arc::clone(&shared.cluster), hello, waiting, later, _place: place };
    let stop = shared.stop.clone();
    let events =
        futures::stream::unfold((watching, stop), |(mut watching, stop): (Subscription, CancellationToken)| async {
            let news = stop.run_until_cancelled(watching.next()).await??;
            Some((Ok(Event::default().event(news.section).retry(RETRY).data(&*news.data)), (watching, stop)))
        });
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE).event(Event::default().event("tick").data("{}"))))
}

/// State of one feed.
struct Subscription {
    cluster: Arc<crate::cluster::Cluster>,
    /// First message of every full state.
    hello: StateSection,
    waiting: VecDeque<StateSection>,
    later: broadcast::Receiver<StateSection>,
    _place: CallPermit,
}

impl Subscription {
    async fn next(&mut self) -> Option<StateSection> {
        loop {
            if let Some(news) = self.waiting.pop_front() {
                return Some(news);
            }
            match self.later.recv().await {
                Ok(news) => return Some(news),
                // A slow reader gets the full state again.
                Err(RecvError::Lagged(_)) => {
                    let (now, later) = self.cluster.feed.watch();
                    (self.waiting, self.later) = ([vec![self.hello.clone()], now].concat().into(), later);
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
