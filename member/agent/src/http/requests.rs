//! Requests and their answers.

use super::body::{Body, whole};
use super::call::{Call, call_of};
use super::{access, guard, probes, stream};
use crate::live_session::LiveSession;
use crate::protocol::{Answer, ErrorAnswer, ErrorBody, ErrorKind, Heartbeat};
use crate::state::AgentState;
use archon_client::{ErrorDetail, NoPosition};
use archon_security::{CallPermit, CallQuota, CountedBody, UnreadAccount};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const EVENT_STREAM: &str = "text/event-stream";
/// Header with the name of the session, or `new`.
const SESSION: &str = "archon-session";
/// Maximum bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of simultaneous lookups of owners, and with TLS of those of one caller; the other connections stay free
/// for the service.
const LOOKUPS_MAX: usize = 32;
const CALLER_LOOKUPS_MAX: usize = 16;
/// Maximum number of watches of owners, and with TLS of those of one caller.
const WATCHES_MAX: usize = 16;
const CALLER_WATCHES_MAX: usize = 8;
/// Time limit for the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Places of lookups and watches of owners, shared by all connections.
#[derive(Clone)]
pub(super) struct OwnerQuotas {
    lookups: CallQuota,
    watches: CallQuota,
}

impl OwnerQuotas {
    /// Creates the quotas. Without certificates all callers are on this machine and look the same, so they share all places.
    pub(super) fn new(has_certificates: bool) -> Self {
        let quota = |calls, calls_max, caller_max| {
            CallQuota::new(calls, calls_max, if has_certificates { caller_max } else { calls_max })
        };
        Self {
            lookups: quota("lookups of owners in progress", LOOKUPS_MAX, CALLER_LOOKUPS_MAX),
            watches: quota("open watches of owners", WATCHES_MAX, CALLER_WATCHES_MAX),
        }
    }
}

/// Caller of one connection.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) shared: Arc<AgentState>,
    /// The connection is plaintext over the network of this machine.
    pub(super) is_plaintext: bool,
    /// Caller by its certificate, with TLS.
    pub(super) certified: Option<archon_security::Caller>,
    /// Budget for what the caller has not read, with TLS.
    pub(super) unread: Option<UnreadAccount>,
    pub(super) quotas: OwnerQuotas,
    /// Set by the first request of the connection.
    pub(super) has_asked: Arc<AtomicBool>,
    /// Ends the connection.
    pub(super) cut: CancellationToken,
}

impl Caller {
    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        self.has_asked.store(true, Ordering::Relaxed);
        // Without TLS only the service keeps connections: those of callers must not take its places. With TLS the places
        // are separate, and a handshake for each request would exhaust the rate of an address.
        let keeps = self.certified.is_some() || request.headers().contains_key(SESSION);
        let answered = self.try_answer(request).await.and_then(|response| self.counted(response));
        let mut response = answered.unwrap_or_else(|error| {
            self.shared.counters.request_refused(error.kind);
            let status = StatusCode::from_u16(error.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let mut response = json(&ErrorAnswer { error });
            *response.status_mut() = status;
            response
        });
        if !keeps {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Counts an answer until the caller has read it.
    fn counted(&self, response: Response<Body>) -> Result<Response<Body>, ErrorBody> {
        let Some(account) = self.unread.clone() else { return Ok(response) };
        let bytes = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
        account.budget.check(account.from, bytes).map_err(overloaded)?;
        let streamed = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == EVENT_STREAM);
        Ok(response.map(|body| CountedBody::new(body, account, streamed, Err).boxed_unsync()))
    }

    async fn try_answer(&self, request: Request<Incoming>) -> Result<Response<Body>, ErrorBody> {
        guard::check_origin(request.headers(), self.is_plaintext)?;
        let (parts, body) = request.into_parts();
        let path = parts.uri.path();
        let (method, answered) = call_of(path).ok_or_else(|| no_path(path))?;
        if let Some(certified) = &self.certified {
            access::check(certified, &answered, &self.shared.config.name)?;
        }
        let table = table_of(parts.uri.query())?;
        if parts.method != method {
            return Err(ErrorBody::new(ErrorKind::Method, format!("{path} has the method {method} only")));
        }
        match answered {
            Call::Events => self.events(&parts.headers),
            Call::Heartbeat => {
                let live = self.session(&parts.headers)?;
                let Heartbeat { seen } = parse(&read_bytes(body).await?)?;
                live.heartbeat(seen).map(|permission| json(&permission))
            }
            Call::Answers => {
                let live = self.session(&parts.headers)?;
                let body = read_bytes(body).await?;
                if body.first() == Some(&b'[') {
                    let listed: Vec<serde_json::Value> = parse(&body)?;
                    let answers = listed.into_iter().map(|answer| {
                        serde_json::from_value(answer).map_err(|error| malformed("an answer of the list", &error))
                    });
                    let taken = live.answers(answers.collect());
                    taken.refused.iter().for_each(|of| self.shared.counters.request_refused(of.error.kind));
                    return Ok(json(&taken));
                }
                let answer: Answer = parse(&body)?;
                live.answer(answer).map(|()| json(&serde_json::json!({})))
            }
            Call::Owned(partition) => {
                let live = self.session(&parts.headers)?;
                let index = partition.parse().map_err(|_| {
                    ErrorBody::new(ErrorKind::Invalid, format!("{partition:?} is not the number of a partition"))
                })?;
                live.owned(self.shared.table(table.as_deref())?, index).map(|owned| json(&owned))
            }
            Call::Where(key) => {
                let table = self.shared.table(table.as_deref())?;
                let _place = self.enter(&self.quotas.lookups)?;
                self.shared.routes.find(table, &decoded(key)?).await.map(|found| json(&found))
            }
            Call::Owners => {
                let _place = self.enter(&self.quotas.lookups)?;
                let table = self.shared.table(table.as_deref())?;
                self.shared.routes.list(table).await.map(|owners| json(&owners))
            }
            Call::WatchOwners => self.watch_owners(&parts.headers, table.as_deref()).await,
            Call::Status => Ok(json(&self.shared.status())),
            Call::Metrics => {
                let _place = self.enter(&self.quotas.lookups)?;
                Ok(probes::metrics(&self.shared, &parts.headers))
            }
            Call::Alive => Ok(probes::health(Ok(()))),
            Call::Ready => Ok(probes::health(self.shared.ready())),
        }
    }

    /// Connects the service: to a new session, or again to its session.
    fn events(&self, headers: &HeaderMap) -> Result<Response<Body>, ErrorBody> {
        let (live, connection, position) = match session_name(headers)? {
            "new" => (self.shared.begin(self.cut.clone())?, 1, 0),
            name => {
                let live = self.shared.session(name)?;
                let text = headers.get("last-event-id").and_then(|id| id.to_str().ok()).unwrap_or("0");
                let position = text.parse().map_err(|_| {
                    ErrorBody::new(ErrorKind::Invalid, format!("the header `last-event-id` is {text:?}, no number"))
                })?;
                let connection = live.attach(position, self.cut.clone())?;
                (live, connection, position)
            }
        };
        let hello = self.shared.hello(&live);
        Ok(event_stream(stream::events(live, connection, position, hello)))
    }

    /// Streams the owners of a table: all of them, or those that have changed after the named event.
    async fn watch_owners(&self, headers: &HeaderMap, table: Option<&str>) -> Result<Response<Body>, ErrorBody> {
        let place = self.enter(&self.quotas.watches)?;
        let mut watch = self.shared.routes.watch(self.shared.table(table)?).await?;
        if let Some(id) = headers.get("last-event-id") {
            let position = String::from_utf8_lossy(id.as_bytes()).parse().map_err(|error: NoPosition| {
                ErrorBody::new(ErrorKind::Invalid, format!("the header `last-event-id`: {error}"))
            })?;
            watch.resume(position);
        }
        Ok(event_stream(stream::owners(watch, place)))
    }

    /// Takes a place of this caller.
    fn enter(&self, quota: &CallQuota) -> Result<CallPermit, ErrorBody> {
        let caller = self.certified.as_ref().unwrap_or(&archon_security::Caller::NOBODY);
        quota.enter(caller).map_err(overloaded)
    }

    fn session(&self, headers: &HeaderMap) -> Result<Arc<LiveSession>, ErrorBody> {
        self.shared.session(session_name(headers)?)
    }
}

fn overloaded(detail: ErrorDetail) -> ErrorBody {
    ErrorBody::new(ErrorKind::Overloaded, detail.message)
}

/// Returns the named session. Web pages cannot set this header.
fn session_name(headers: &HeaderMap) -> Result<&str, ErrorBody> {
    headers.get(SESSION).and_then(|name| name.to_str().ok()).ok_or_else(|| {
        let message = format!("the request needs the header `{SESSION}`: `new`, or the session that `hello` named");
        ErrorBody::new(ErrorKind::Invalid, message)
    })
}

fn no_path(path: &str) -> ErrorBody {
    ErrorBody::new(ErrorKind::NotFound, format!("there is no {path}; the paths are in docs/reference/agent.md"))
}

/// Returns the value of `table` in a query, which may have nothing else.
fn table_of(query: Option<&str>) -> Result<Option<String>, ErrorBody> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let wrong = || ErrorBody::new(ErrorKind::Invalid, format!("the query is {query:?}; it may be table=NAME"));
    let table = query.strip_prefix("table=").ok_or_else(wrong)?;
    String::from_utf8(decoded(table)?).map(Some).map_err(|_| wrong())
}

/// Decodes percent-encoded text.
fn decoded(text: &str) -> Result<Vec<u8>, ErrorBody> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err(ErrorBody::new(ErrorKind::Invalid, format!("{text:?} is not percent-encoded")));
        };
        decoded.push(u8::try_from(high * 16 + low).unwrap_or_default());
        rest = &rest[2..];
    }
    Ok(decoded)
}

/// Reads a body, without spaces before its document.
async fn read_bytes(body: Incoming) -> Result<Bytes, ErrorBody> {
    let body = timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let body = body.map_err(|_| ErrorBody::new(ErrorKind::Invalid, "the body did not arrive within 10 s"))?;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let message = format!("the body has more than {BODY_BYTES_MAX} bytes, which is the limit");
            return ErrorBody::new(ErrorKind::TooLarge, message);
        }
        ErrorBody::new(ErrorKind::Invalid, format!("the body broke off: {error}"))
    })?;
    let bytes = body.to_bytes();
    Ok(bytes.slice_ref(bytes.trim_ascii_start()))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorBody> {
    serde_json::from_slice(body).map_err(|error| malformed("the body", &error))
}

fn malformed(part: &str, error: &serde_json::Error) -> ErrorBody {
    ErrorBody::new(ErrorKind::Invalid, format!("{part} is no document of this request: {error}"))
}

fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn json(document: &impl Serialize) -> Response<Body> {
    // Documents hold text and numbers only, so they have a form in JSON.
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    let mut response = Response::new(whole(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_security::connection_limit::ConnectionLimit;
    use std::net::Ipv4Addr;

    #[test]
    fn one_caller_leaves_watches_for_others() {
        let connections = ConnectionLimit::new(8);
        let caller =
            |name: &str| connections.enter(Ipv4Addr::LOCALHOST.into()).caller(Some(Arc::new(name.parse().unwrap())));
        let watches = OwnerQuotas::new(true).watches;
        let held: Vec<_> = (0..8).map(|_| watches.enter(&caller("client/shop")).unwrap()).collect();
        let refusal = overloaded(watches.enter(&caller("client/shop")).unwrap_err());
        assert!(refusal.message.contains("client/shop has 8 open watches of owners"), "{}", refusal.message);
        assert_eq!(refusal.kind.status(), 429);
        assert!(watches.enter(&caller("client/other")).is_ok());
        drop(held);
        // Callers on this machine look the same.
        let watches = OwnerQuotas::new(false).watches;
        let held: Vec<_> = (0..16).map(|_| watches.enter(&archon_security::Caller::NOBODY).unwrap()).collect();
        assert!(watches.enter(&archon_security::Caller::NOBODY).is_err());
        drop(held);
    }

    #[test]
    fn keys_and_queries_are_decoded() {
        assert_eq!(decoded("city%2F1+a%c3%A9").unwrap(), "city/1+aé".as_bytes());
        for wrong in ["%", "%2", "%zz", "a%é"] {
            assert_eq!(decoded(wrong).unwrap_err().kind, ErrorKind::Invalid, "{wrong}");
        }
        assert_eq!(table_of(Some("table=jobs")).unwrap().as_deref(), Some("jobs"));
        assert_eq!((table_of(None).unwrap(), table_of(Some("")).unwrap()), (None, None));
        assert!(table_of(Some("tabel=jobs")).is_err());
    }
}
