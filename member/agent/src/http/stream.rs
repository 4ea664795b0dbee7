//! Streams of server-sent events: to the service, and to watchers of owners.

use super::body::Body;
use crate::live_session::LiveSession;
use crate::protocol::{Event, Hello};
use archon_client::{ErrorDetail, OwnersPosition, OwnersWatch};
use archon_security::CallPermit;
use bytes::Bytes;
use futures::stream::unfold;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of events in one chunk.
const EVENTS_AT_ONCE: usize = 256;

/// Interval of comments in a stream without events, so that either side notices a dead connection.
const COMMENT_EVERY: Duration = Duration::from_secs(10);

const COMMENT: &str = ":\n\n";

/// A connection of the service. Dropping it reports its end.
struct ServiceConnection {
    live: Arc<LiveSession>,
    connection: u64,
    position: u64,
    hello: Option<Hello>,
}

impl Drop for ServiceConnection {
    fn drop(&mut self) {
        self.live.detach(self.connection);
    }
}

/// Returns a body that greets, and then sends all events after a position.
pub(super) fn events(live: Arc<LiveSession>, connection: u64, position: u64, hello: Hello) -> Body {
    let connected = ServiceConnection { live, connection, position, hello: Some(hello) };
    let chunks = unfold(connected, |mut connected| async move {
        let text = match connected.hello.take() {
            Some(hello) => text(&Event::Hello(hello)),
            None => {
                let next = connected.live.events_after(connected.connection, connected.position, EVENTS_AT_ONCE);
                match timeout(COMMENT_EVERY, next).await {
                    Ok(next) => {
                        let (events, position) = next?;
                        connected.position = position;
                        events.iter().map(|event| text(event)).collect()
                    }
                    Err(_) => COMMENT.to_owned(),
                }
            }
        };
        Some((Ok::<_, ErrorDetail>(Frame::data(Bytes::from(text))), connected))
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Returns a body with the changes of owners. It ends when the table is dropped.
pub(super) fn owners(watch: OwnersWatch, place: CallPermit) -> Body {
    let chunks = unfold((watch, place), |(mut watch, place)| async move {
        let text = match timeout(COMMENT_EVERY, watch.next()).await {
            Ok(owners) => {
                let owners = owners?;
                let id = OwnersPosition::from(&owners);
                // The documents hold text and numbers only, so they have a form in JSON, of one line.
                let data = serde_json::to_string(&owners).unwrap_or_default();
                format!("id: {id}\nevent: owners\ndata: {data}\n\n")
            }
            Err(_) => COMMENT.to_owned(),
        };
        Some((Ok::<_, ErrorDetail>(Frame::data(Bytes::from(text))), (watch, place)))
    });
    StreamBody::new(chunks).boxed_unsync()
}

/// Formats an event.
fn text(event: &Event) -> String {
    let (name, sequence) = match event {
        Event::Hello(_) => ("hello", None),
        Event::Acquire(event) => ("acquire", Some(event.sequence)),
        Event::Release(event) => ("release", Some(event.sequence)),
        Event::Lost(event) => ("lost", Some(event.sequence)),
        Event::Ended(event) => ("ended", Some(event.sequence)),
    };
    let mut text = String::new();
    if let Some(sequence) = sequence {
        let _ = writeln!(text, "id: {sequence}");
    }
    // The documents hold text and numbers only, so they have a form in JSON, of one line.
    let data = serde_json::to_string(event).unwrap_or_default();
    let _ = write!(text, "event: {name}\ndata: {data}\n\n");
    text
}
