//! Calls to the leading coordinator: discovery and retries until the time-out.

use crate::error::{Error, Outcome};
use crate::measure::AdminMeasures;
use crate::net::link::{Links, never_sent};
use crate::net::retry::Backoff;
pub(crate) use archon_documents::Effect;
use archon_documents::Method;
use archon_proto::convert::error::{detail_of, is_answer, is_lasting, speaks_no_grpc};
use archon_proto::convert::ids::check_address;
use archon_proto::documents;
use archon_proto::trace::TracedChannel;
use archon_proto::v1::{self, table_client::TableClient};
use archon_security::{Caller, ExpectedPeer, ON_BEHALF_OF, TlsError, Transport, is_refused_for_good};
use archon_types::{DEFAULT_TABLE, ErrorDetail, ErrorKind};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Request, Response, Status};

/// Time-out of one coordinator in the first round; it doubles with each round, so that neither a silent process nor a
/// slow answer ends the call.
const TRY_FIRST: Duration = Duration::from_secs(1);
/// Maximum pause between rounds: people wait for these calls.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Silence of all coordinators after which the caller gets a report.
const REPORTED_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of remembered coordinators.
const COORDINATORS_MAX: usize = 64;

/// Nodes that are asked for the coordinators if no known coordinator exists any longer.
const NODES_ASKED_MAX: usize = 3;

/// A response of any type.
type AnyResponse = Box<dyn Any + Send>;
/// One attempt to get a response from a coordinator.
type Attempt<'a> = BoxFuture<'a, Result<AnyResponse, Status>>;
/// Starts an attempt on this channel, with the metadata of this request.
type Attempts<'a> = dyn Fn(TracedChannel, Request<()>) -> Attempt<'a> + Send + Sync + 'a;

/// Connection to the leading coordinator.
#[derive(Clone, Debug)]
pub(crate) struct CoordinatorClient {
    endpoints: Vec<String>,
    timeout: Duration,
    links: Arc<Links>,
    /// The coordinator that answered last.
    leader: Arc<Mutex<Option<String>>>,
    /// Coordinators reported by nodes, for endpoints that are nodes.
    learned: Arc<Mutex<Vec<String>>>,
    /// Known nodes: they know the current coordinators if all configured ones are gone.
    nodes: Arc<Mutex<Vec<String>>>,
    /// The caller that this client acts for, if not for itself.
    on_behalf_of: Option<AsciiMetadataValue>,
    /// Gets a report while no coordinator answers.
    unanswered: Option<UnansweredCallback>,
    measures: Arc<AdminMeasures>,
}

type UnansweredFn = dyn Fn(&ErrorDetail, Duration) + Send + Sync;

/// A caller's function that receives the reason why no coordinator answers, and the remaining time.
#[derive(Clone)]
pub(crate) struct UnansweredCallback(Arc<UnansweredFn>);

impl std::fmt::Debug for UnansweredCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnansweredCallback")
    }
}

/// Classification of a called process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Callee {
    /// A coordinator, or another listener there: it answered.
    Answers,
    /// No answer.
    Silent,
    /// Not a coordinator.
    Other,
}

/// Addresses by outcome of one round, for error messages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Round {
    answer: Vec<String>,
    silent: Vec<String>,
}

impl Round {
    fn note(&mut self, address: &str, who: Callee) {
        match who {
            Callee::Answers => self.answer.push(address.to_owned()),
            Callee::Silent => self.silent.push(address.to_owned()),
            Callee::Other => {}
        }
    }

    fn heard(&self) -> usize {
        self.answer.len() + self.silent.len()
    }

    /// Describes which coordinators answered and which did not; empty if the error already says so.
    fn text(&self) -> String {
        if self.heard() < 2 {
            return String::new();
        }
        let part = |what: &str, who: &[String]| match who {
            [] => String::new(),
            who => format!("; {what}: {}", who.join(", ")),
        };
        format!("{}{}", part("answering", &self.answer), part("not answering", &self.silent))
    }
}

/// Consequence of a failed attempt.
enum Verdict {
    /// Try this address next.
    Follow(String),
    /// Try the others.
    Next,
    /// Try the others; this one will not answer differently.
    Hopeless,
    /// Stop: others would answer the same.
    Final,
}

impl CoordinatorClient {
    pub(crate) fn new(endpoints: Vec<String>, timeout: Duration, transport: Transport) -> Self {
        let connect_timeout = timeout.min(TRY_FIRST);
        Self {
            endpoints,
            timeout,
            links: Arc::new(Links::new(connect_timeout, transport)),
            leader: Arc::default(),
            learned: Arc::default(),
            nodes: Arc::default(),
            on_behalf_of: None,
            unanswered: None,
            measures: Arc::default(),
        }
    }

    /// Returns a client that acts for another caller.
    pub(crate) fn on_behalf_of(&self, caller: &Caller) -> Self {
        // Names and addresses are valid metadata.
        Self { on_behalf_of: caller.behalf().and_then(|text| text.parse().ok()), ..self.clone() }
    }

    /// Returns a client with a function that is called once a call has been unanswered for a second.
    pub(crate) fn on_unanswered(&self, report: impl Fn(&ErrorDetail, Duration) + Send + Sync + 'static) -> Self {
        Self { unanswered: Some(UnansweredCallback(Arc::new(report))), ..self.clone() }
    }

    /// Returns the channels of this client.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Returns the configured addresses.
    pub(crate) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Returns the time-out of calls.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends `message` to coordinators in turn until one gives a final answer or the time-out passes.
    pub(crate) async fn call<M, R, F>(
        &self,
        effect: Effect,
        message: M,
        rpc: impl Fn(TracedChannel, Request<M>) -> F + Send + Sync,
    ) -> Result<R, Error>
    where
        M: Clone + Send + Sync,
        R: Send + 'static,
        F: Future<Output = Result<Response<R>, Status>> + Send,
    {
        let attempt = |channel, request: Request<()>| -> Attempt<'_> {
            let answer = rpc(channel, request.map(|()| message.clone()));
            Box::pin(async { answer.await.map(|response| Box::new(response.into_inner()) as AnyResponse) })
        };
        let response = self.measures.calling(effect, self.ask(effect, &attempt)).await?;
        match response.downcast() {
            Ok(response) => Ok(*response),
            Err(_) => unreachable!("the attempts above answer with this type"),
        }
    }

    /// Calls a method with documents; compiled once for all methods.
    pub(crate) async fn exchange(
        &self,
        method: &'static Method,
        effect: Effect,
        message: v1::AdminRequest,
    ) -> Result<v1::AdminAnswer, Error> {
        self.call(effect, message, |channel, request| documents::call(channel, method, request)).await
    }

    /// The non-generic part of [`call`](Self::call). Boxed, because each crate that polls an unboxed future compiles
    /// it again.
    fn ask<'a>(&'a self, effect: Effect, attempt: &'a Attempts<'a>) -> BoxFuture<'a, Result<AnyResponse, Error>> {
        Box::pin(self.ask_all(effect, attempt))
    }

    async fn ask_all(&self, effect: Effect, attempt: &Attempts<'_>) -> Result<AnyResponse, Error> {
        let began = Instant::now();
        let deadline = began + self.timeout;
        let mut reported = false;
        let (mut last, mut open): (Option<(u8, ErrorDetail)>, bool) = (None, false);
        let mut whole = Round::default();
        let mut backoff = Backoff::default();
        let mut try_timeout = TRY_FIRST;
        loop {
            let mut asked: Vec<String> = Vec::new();
            let mut waiting = self.candidates();
            let mut round = Round::default();
            let (mut hopeless, mut refused) = (true, false);
            while let Some(address) = waiting.pop_front() {
                if asked.contains(&address) {
                    continue;
                }
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let fuller = if round.heard() < whole.heard() { whole } else { round };
                    return Err(self.passed(effect, open, last, &fuller));
                }
                asked.push(address.clone());
                let limit = try_timeout.min(left);
                let (detail, verdict, who) = match self.once(&address, limit, attempt).await {
                    Ok(answer) => {
                        *self.leader.lock() = Some(address);
                        return Ok(answer);
                    }
                    Err(FailedCall { detail, verdict, sent, who }) => {
                        open |= sent && effect == Effect::Writes;
                        (detail, verdict, who)
                    }
                };
                round.note(asked.last().map_or("", String::as_str), who);
                hopeless &= matches!(verdict, Verdict::Hopeless);
                refused |= is_refused_for_good(&detail.message);
                match verdict {
                    Verdict::Final => return Err(detail.into()),
                    Verdict::Hopeless => {}
                    Verdict::Follow(leader) => waiting.push_front(leader),
                    Verdict::Next => waiting.extend(self.learned.lock().iter().cloned()),
                }
                // The quorum's own report is more informative than an unreachable address.
                let weight = weight(&detail, who);
                if last.as_ref().is_none_or(|(held, _)| weight >= *held) {
                    last = Some((weight, detail));
                }
            }
            // Stopped coordinators would reject the certificate like the others.
            let given_up = hopeless || (refused && round.answer.is_empty());
            if let Some((_, detail)) = last.take_if(|_| given_up) {
                return Err(detail.into());
            }
            if round.answer.is_empty() {
                self.ask_nodes(deadline).await;
            }
            if !reported
                && round.answer.is_empty()
                && began.elapsed() >= REPORTED_AFTER
                && let (Some(UnansweredCallback(report)), Some((_, detail))) = (&self.unanswered, &last)
            {
                reported = true;
                report(detail, deadline.saturating_duration_since(Instant::now()));
            }
            whole = round;
            try_timeout = try_timeout.saturating_mul(2);
            let pause = backoff.next(true, None, rand::random::<f64>()).min(PAUSE_MAX);
            let left = deadline.saturating_duration_since(Instant::now());
            sleep(pause.min(left)).await;
            if pause >= left {
                return Err(self.passed(effect, open, last, &whole));
            }
        }
    }

    fn passed(&self, effect: Effect, open: bool, last: Option<(u8, ErrorDetail)>, round: &Round) -> Error {
        let last = last.map(|(_, mut detail)| {
            detail.message.push_str(&round.text());
            detail
        });
        let timeout_ms = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let outcome = match effect {
            Effect::Reads => Outcome::Read,
            Effect::Writes => Outcome::of_write(open),
        };
        Error::DeadlineExceeded { timeout_ms, outcome, last: last.map(Box::new) }
    }

    /// Returns the addresses of a round, in order: the last that answered, the configured ones, learned coordinators.
    fn candidates(&self) -> VecDeque<String> {
        let leader = self.leader.lock().clone();
        let learned = self.learned.lock().clone();
        leader.into_iter().chain(self.endpoints.iter().cloned()).chain(learned).collect()
    }

    async fn once(&self, address: &str, limit: Duration, attempt: &Attempts<'_>) -> Result<AnyResponse, FailedCall> {
        // A configured address may be a node, which knows the coordinators; a learned one is a coordinator.
        let named = self.endpoints.iter().any(|endpoint| endpoint == address);
        let expected = if named { ExpectedPeer::Servers } else { ExpectedPeer::Coordinators };
        let channel = self.links.channel(address, expected).map_err(FailedCall::at_once)?;
        let mut request = Request::new(());
        // The server must not work for a caller that is gone.
        request.set_timeout(limit);
        if let Some(caller) = &self.on_behalf_of {
            request.metadata_mut().insert(ON_BEHALF_OF, caller.clone());
        }
        let status = match timeout(limit, attempt(channel.clone(), request)).await {
            Ok(Ok(response)) => return Ok(response),
            Ok(Err(status)) => status,
            Err(_) => {
                let message = format!("{address} did not answer within {} ms", rounded_ms(limit));
                let detail = ErrorDetail::new(ErrorKind::Unreachable, message);
                return Err(FailedCall { detail, verdict: Verdict::Next, sent: true, who: Callee::Silent });
            }
        };
        let mut detail = detail_of(&status);
        if is_answer(&status) {
            let verdict = match (detail.kind, &detail.leader) {
                (ErrorKind::NotCoordinatorLeader, Some(leader)) if check_address(leader, "leader").is_ok() => {
                    Verdict::Follow(leader.clone())
                }
                (kind, _) if may_pass(kind) => Verdict::Next,
                _ => Verdict::Final,
            };
            let sent = detail.kind == ErrorKind::DeadlineExceeded;
            return Err(FailedCall { detail, verdict, sent, who: Callee::Answers });
        }
        detail.message = format!("{address}: {}", detail.message);
        if status.code() == Code::Unimplemented {
            // A node or another server; a node knows the coordinators.
            detail.kind = ErrorKind::Unreachable;
            detail.message = format!("{address} is not a coordinator");
            self.learn(channel, limit).await;
            return Err(FailedCall { detail, verdict: Verdict::Next, sent: false, who: Callee::Other });
        }
        if speaks_no_grpc(&status) {
            return Err(FailedCall { detail, verdict: Verdict::Hopeless, sent: false, who: Callee::Other });
        }
        let verdict = match detail.kind {
            // A member that rejects the plaintext connection speaks for the whole cluster: it uses TLS, and this
            // client does not.
            ErrorKind::InvalidArgument | ErrorKind::Refused => Verdict::Final,
            _ if is_lasting(&status) => Verdict::Hopeless,
            _ => Verdict::Next,
        };
        if detail.kind == ErrorKind::DeadlineExceeded {
            detail.kind = ErrorKind::Unreachable;
        }
        // Certificates are checked before any request is read. A certificate revoked later ends a connection on which
        // requests may have been executed.
        let is_own = || detail.message.contains(&TlsError::Refused(String::new()).to_string());
        if is_refused_for_good(&detail.message) && (never_sent(&status) || is_own()) {
            detail.kind = ErrorKind::Refused;
            return Err(FailedCall { detail, verdict: Verdict::Hopeless, sent: false, who: Callee::Silent });
        }
        Err(FailedCall { detail, verdict, sent: !never_sent(&status), who: Callee::Silent })
    }

    /// Remembers the addresses of nodes.
    pub(crate) fn note_nodes<'a>(&self, addresses: impl Iterator<Item = &'a str>) {
        *self.nodes.lock() = addresses.take(NODES_ASKED_MAX).map(str::to_owned).collect();
    }

    /// Asks nodes for the current coordinators if no known one answers.
    async fn ask_nodes(&self, deadline: Instant) {
        let nodes = self.nodes.lock().clone();
        for address in nodes {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(channel) = self.links.channel(&address, ExpectedPeer::Servers) else { continue };
            if self.learn(channel, TRY_FIRST.min(left)).await {
                return;
            }
        }
    }

    /// Asks a node for the addresses of the coordinators. Returns whether it knew any.
    async fn learn(&self, channel: TracedChannel, limit: Duration) -> bool {
        // No table has a newer version, so the answer holds only the addresses.
        let request = v1::GetTableRequest { table: DEFAULT_TABLE.to_owned(), since: u64::MAX, ..Default::default() };
        if let Ok(Ok(response)) = timeout(limit, TableClient::new(channel).get_table(request)).await {
            let mut addresses = response.into_inner().coordinators;
            addresses.retain(|address| check_address(address, "coordinator").is_ok());
            addresses.truncate(COORDINATORS_MAX);
            let told = !addresses.is_empty();
            *self.learned.lock() = addresses;
            return told;
        }
        false
    }
}

struct FailedCall {
    detail: ErrorDetail,
    verdict: Verdict,
    /// A write may have taken effect.
    sent: bool,
    who: Callee,
}

impl FailedCall {
    fn at_once(detail: ErrorDetail) -> Self {
        Self { detail, verdict: Verdict::Final, sent: false, who: Callee::Silent }
    }
}

/// Returns whether another coordinator, or this one later, may answer differently. Too few nodes and full disks are
/// final: a person must act.
fn may_pass(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::NotEnoughNodes | ErrorKind::ReadOnly => false,
        ErrorKind::DeadlineExceeded => true,
        other => other.is_retryable(),
    }
}

/// Returns how informative an error is about the reason why no coordinator answers.
fn weight(detail: &ErrorDetail, who: Callee) -> u8 {
    match (who, detail.kind) {
        // A node among coordinators explains nothing.
        (Callee::Other, _) => 0,
        (_, ErrorKind::NoQuorum) => 3,
        // A stopped coordinator explains nothing if running ones reject the certificate.
        (Callee::Silent, ErrorKind::Refused) => 2,
        (_, ErrorKind::Unreachable) => 1,
        // The leader has evaluated the call; a follower has not.
        (Callee::Answers, kind) if kind != ErrorKind::NotCoordinatorLeader => 3,
        _ => 2,
    }
}

/// Rounds the rest of a time-out to the unit in which it was given: people call 1,999.9 ms 2,000.
fn rounded_ms(time: Duration) -> u128 {
    const UNIT: u128 = 10;
    time.as_micros().div_ceil(1_000 * UNIT) * UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_certificate_outweighs_stopped_coordinator() {
        let [stopped, refuses] = [ErrorKind::Unreachable, ErrorKind::Refused]
            .map(|kind| weight(&ErrorDetail::new(kind, "why"), Callee::Silent));
        assert!(stopped < refuses);
    }

    #[test]
    fn lost_quorum_error_names_answering_coordinators() {
        let mut round = Round::default();
        round.note("127.0.0.1:7101", Callee::Answers);
        round.note("127.0.0.1:7201", Callee::Other);
        assert_eq!(round.text(), "", "one alone is named by its error");
        round.note("127.0.0.1:7102", Callee::Silent);
        round.note("127.0.0.1:7103", Callee::Silent);
        assert_eq!(round.text(), "; answering: 127.0.0.1:7101; not answering: 127.0.0.1:7102, 127.0.0.1:7103");
        let weight = |kind, who| super::weight(&ErrorDetail::new(kind, "why"), who);
        assert!(weight(ErrorKind::Unreachable, Callee::Other) < weight(ErrorKind::Unreachable, Callee::Silent));
        assert!(
            weight(ErrorKind::Unreachable, Callee::Silent) < weight(ErrorKind::NotCoordinatorLeader, Callee::Answers)
        );
        assert!(
            weight(ErrorKind::NotCoordinatorLeader, Callee::Answers) < weight(ErrorKind::NoQuorum, Callee::Answers)
        );
    }

    #[test]
    fn time_out_is_rounded_as_it_was_given() {
        let found = [1_999_900, 2_000_000, 500_000, 3].map(|micros| rounded_ms(Duration::from_micros(micros)));
        assert_eq!(found, [2_000, 2_000, 500, 10]);
    }
}
