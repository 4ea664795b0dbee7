//! Questions to the coordinators about tables that this node has not received.

use arc_swap::ArcSwap;
use archon_proto::v1::{GetTableRequest, table_client::TableClient};
use archon_security::Transport;
use archon_session::Coordinators;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{ClusterId, ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tonic::Request;
use tonic::transport::Channel;

/// Maximum number of concurrent questions to the coordinators; those about other tables wait for a place.
const LOOKUPS_MAX: usize = 32;
/// Maximum number of names that are asked about, or wait for a place.
const NAMES_MAX: usize = 1_024;

/// Questions to the coordinators whether a table exists. This node may not have received a new table yet, so only the
/// leading coordinator can deny one (PROTOCOL rule 88).
pub(crate) struct TableLookup {
    coordinators: Coordinators,
    /// Addresses of the coordinators, as of the last question.
    learned: Arc<ArcSwap<Vec<String>>>,
    places: Semaphore,
    questions: Questions,
}

impl TableLookup {
    /// Creates the channels to the coordinators, connected on first use.
    pub(crate) fn new(configured: Vec<String>, transport: Transport) -> Self {
        let learned = Arc::new(ArcSwap::default());
        let addresses = Arc::clone(&learned);
        let all = move || Vec::clone(&addresses.load());
        let coordinators = Coordinators::new(configured, transport, all);
        Self { coordinators, learned, places: Semaphore::new(LOOKUPS_MAX), questions: Questions::default() }
    }

    /// Returns whether the cluster has the table, according to a coordinator. Calls about the same table share the
    /// questions.
    ///
    /// # Errors
    /// The last refusal, if no coordinator answers in time; `Unavailable` if too many names are asked about.
    pub(super) async fn exists(
        &self,
        cluster: ClusterId,
        name: &str,
        learned: Vec<String>,
        within: Duration,
    ) -> Result<bool, ErrorDetail> {
        let question = async {
            let Ok(_place) = self.places.acquire().await else { return Ok(true) };
            self.learned.store(Arc::new(learned));
            // No version is newer, so the answer holds no rows.
            let request = GetTableRequest {
                cluster: Some(cluster.into()),
                table: name.to_owned(),
                since: u64::MAX,
                unassigned: true,
                ..Default::default()
            };
            let client = |channel| TableClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
            let call = async |mut client: TableClient<Channel>, request: Request<GetTableRequest>| {
                client.get_table(request).await
            };
            match self.coordinators.call_service(within, request, client, call).await {
                Ok(_) => Ok(true),
                Err(detail) if detail.kind == ErrorKind::NotFound => Ok(false),
                Err(detail) => Err(detail),
            }
        };
        self.questions.ask(name, question).await
    }
}

/// Questions about tables by name: one at a time about each, shared by the calls that came before it began.
///
/// A call that comes while a question is in progress waits for the next one. The table may have been created, and that
/// confirmed, after the leader evaluated the present one, so its denial would be stale.
#[derive(Default)]
struct Questions {
    by_name: Mutex<BTreeMap<String, PendingLookup>>,
    /// Orders arrivals of calls and beginnings of questions.
    moments: AtomicU64,
}

/// A name that is asked about.
#[derive(Default)]
struct PendingLookup {
    question: Arc<Question>,
    /// Calls that have not ended; the last one removes the name.
    calls: usize,
}

/// The question about one name. The lock is held while it is in progress, and passes to the calls in their order.
#[derive(Default)]
struct Question {
    last: tokio::sync::Mutex<Option<LookupOutcome>>,
}

/// Outcome of a question that began at this moment.
struct LookupOutcome {
    begun: u64,
    exists: Result<bool, ErrorDetail>,
}

impl Questions {
    /// Returns the outcome of a question that began after this call: one of another call, or its own.
    async fn ask(
        &self,
        name: &str,
        question: impl Future<Output = Result<bool, ErrorDetail>>,
    ) -> Result<bool, ErrorDetail> {
        let entry = self.enter(name)?;
        let mut last = entry.question.last.lock().await;
        if let Some(answered) = last.as_ref().filter(|answered| answered.begun > entry.arrived) {
            return answered.exists.clone();
        }
        // If this call is dropped meanwhile, the next one asks.
        let begun = self.moment();
        let exists = question.await;
        *last = Some(LookupOutcome { begun, exists: exists.clone() });
        exists
    }

    fn enter(&self, name: &str) -> Result<Entry<'_>, ErrorDetail> {
        let mut by_name = self.by_name.lock();
        if by_name.len() >= NAMES_MAX && !by_name.contains_key(name) {
            let why = format!("{NAMES_MAX} other names of tables are being looked up");
            return Err(ErrorDetail::new(ErrorKind::Unavailable, why));
        }
        let asked = by_name.entry(name.to_owned()).or_default();
        asked.calls += 1;
        let question = Arc::clone(&asked.question);
        Ok(Entry { questions: self, name: name.to_owned(), question, arrived: self.moment() })
    }

    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::Relaxed)
    }
}

/// A call that asks about a name.
struct Entry<'a> {
    questions: &'a Questions,
    name: String,
    question: Arc<Question>,
    arrived: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut by_name = self.questions.by_name.lock();
        let Some(asked) = by_name.get_mut(&self.name) else { return };
        asked.calls -= 1;
        if asked.calls == 0 {
            by_name.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use futures::future::join_all;
    use std::cell::Cell;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn calls_about_one_name_share_a_question() {
        let (questions, asked) = (Questions::default(), Cell::new(0));
        let (answer, answered) = oneshot::channel();
        let mut first = Box::pin(questions.ask("orders", async { answered.await.unwrap() }));
        assert!(first.as_mut().now_or_never().is_none(), "it is in progress");
        let count = async || {
            asked.set(asked.get() + 1);
            tokio::task::yield_now().await;
            Ok(false)
        };
        let mut others = Box::pin(join_all((0..2_000).map(|_| questions.ask("orders", count()))));
        assert!(others.as_mut().now_or_never().is_none());
        assert_eq!(asked.get(), 0, "they wait");
        assert_eq!(questions.ask("users", async { Ok(true) }).await, Ok(true), "another name does not wait");
        answer.send(Ok(false)).unwrap();
        assert_eq!(first.await, Ok(false));
        assert!(others.await.into_iter().all(|exists| exists == Ok(false)));
        assert_eq!(asked.get(), 1);
        assert!(questions.by_name.lock().is_empty());
    }

    /// The table is created after the leader has evaluated the question, and before the second call.
    #[tokio::test]
    async fn denial_from_before_a_call_is_not_its_answer() {
        let questions = Questions::default();
        let (answer, answered) = oneshot::channel();
        let mut first = Box::pin(questions.ask("orders", async { answered.await.unwrap() }));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(questions.ask("orders", async { Ok(true) }));
        assert!(second.as_mut().now_or_never().is_none());
        answer.send(Ok(false)).unwrap();
        assert_eq!((first.await, second.await), (Ok(false), Ok(true)));
    }

    #[tokio::test]
    async fn dropped_call_leaves_its_question_to_the_next() {
        let questions = Questions::default();
        let mut first = Box::pin(questions.ask("orders", std::future::pending()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(questions.ask("orders", async { Ok(true) }));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(second.await, Ok(true));
        assert!(questions.by_name.lock().is_empty());
    }

    #[tokio::test]
    async fn names_in_progress_are_bounded() {
        let questions = Questions::default();
        let mut held = Vec::new();
        for number in 0..NAMES_MAX {
            held.push(questions.enter(&format!("table-{number}")).unwrap());
        }
        assert_eq!(questions.ask("one more", async { Ok(true) }).await.unwrap_err().kind, ErrorKind::Unavailable);
        assert_eq!(questions.ask("table-1", async { Ok(true) }).await, Ok(true));
        held.pop();
        assert_eq!(questions.ask("one more", async { Ok(true) }).await, Ok(true));
    }
}
