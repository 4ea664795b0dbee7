//! The interfaces through which clients of a workload work on keys: the client library, or Redis listeners.

use super::operation::{Outcome, Request};
use super::pair;
use crate::redis_driver::{Driver, Reply};
use archon_client::{Client, Error};
use archon_types::Revision;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which a read without an answer is repeated.
const READ_TIMEOUT: Duration = Duration::from_secs(45);
/// Pause after a request without an answer.
const PAUSE: Duration = Duration::from_millis(50);

/// An interface of the cluster.
#[derive(Clone, Debug)]
pub(super) enum Store {
    /// The client library.
    Native(Client),
    /// A client library of Redis, which sends each write once.
    Redis {
        /// Its process.
        driver: Arc<Driver>,
        /// Replaces values by `WATCH`, `MULTI` and `EXEC` instead of a condition of `SET`, and uses `MULTI` for pairs of keys.
        transactions: bool,
    },
}

/// A request without an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UnansweredRequest {
    /// The error.
    pub(super) text: String,
    /// False if the request certainly had no effect.
    pub(super) unknown: bool,
}

impl Store {
    pub(super) const fn is_redis(&self) -> bool {
        matches!(self, Self::Redis { .. })
    }

    /// Returns the client that can read pages of keys with their values, if the interface can.
    pub(super) fn scanner(&self) -> Option<Client> {
        match self {
            Self::Native(client) => Some(client.clone()),
            Self::Redis { .. } => None,
        }
    }

    /// Executes a request on a key, or on both keys of a pair. The client library reads the first one of them.
    pub(super) async fn ask(&self, key: &str, pair: bool, request: &Request) -> Result<Outcome, UnansweredRequest> {
        match self {
            Self::Native(client) => native(client, key, request)
                .await
                .map_err(|error| UnansweredRequest { text: error.to_string(), unknown: error.outcome_unknown() }),
            Self::Redis { driver, transactions } => redis(driver, *transactions, (key, pair), request).await,
        }
    }
}

async fn native(client: &Client, key: &str, request: &Request) -> Result<Outcome, Error> {
    let bytes = |value: &Arc<str>| value.as_bytes().to_vec();
    let outcome = match request {
        Request::Get => client
            .get(key)
            .await
            .map(|found| Outcome::Value(found.map(|found| (text(&found.value), Some(found.revision.get()))))),
        Request::Put(value) => {
            client.put(key, bytes(value)).await.map(|revision| Outcome::Written(Some(revision.get())))
        }
        Request::Delete => client.delete(key).await.map(|existed| Outcome::Deleted { existed }),
        Request::CompareAndSet { expected, value } => client
            .compare_and_set(key, Revision::new(*expected), bytes(value))
            .await
            .map(|revision| Outcome::Written(Some(revision.get()))),
        // Its conditions are revisions.
        Request::Replace { .. } => {
            Err(Error::InvalidArgument { message: "the client library compares revisions".into() })
        }
        Request::Increment(by) => client
            .increment(key, *by)
            .await
            .map(|counter| Outcome::Counter { value: counter.value, revision: Some(counter.revision.get()) }),
    };
    match outcome {
        Err(Error::ConditionFailed { found }) => Ok(Outcome::ConditionFailed { found: found.get() }),
        Err(Error::NotANumber) => Ok(Outcome::NotANumber),
        other => other,
    }
}

/// Executes a request, and repeats a read while the cluster refuses it. A refused write is not repeated: its value, if found
/// later, shows that it had an effect.
async fn redis(
    driver: &Driver,
    transactions: bool,
    (key, pair): (&str, bool),
    request: &Request,
) -> Result<Outcome, UnansweredRequest> {
    let began = Instant::now();
    loop {
        let answered = match pair {
            true => pair::ask(driver, transactions, key, request).await,
            false => outcome(request, send(driver, transactions, key.as_bytes(), request).await),
        };
        match answered {
            Err(_) if request.is_read() && began.elapsed() < READ_TIMEOUT => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                tokio::time::sleep(PAUSE).await;
                return Err(error);
            }
            answered => return answered,
        }
    }
}

async fn send(driver: &Driver, transactions: bool, key: &[u8], request: &Request) -> Reply {
    match request {
        Request::Get => driver.call(&[b"GET", key]).await,
        Request::Put(value) => driver.call(&[b"SET", key, value.as_bytes()]).await,
        Request::Delete => driver.call(&[b"DEL", key]).await,
        Request::Replace { expected: None, value } => driver.call(&[b"SET", key, value.as_bytes(), b"NX"]).await,
        Request::Replace { expected: Some(old), value } if transactions => {
            driver.swap(&[key], old.as_bytes(), value.as_bytes()).await
        }
        Request::Replace { expected: Some(old), value } => {
            driver.call(&[b"SET", key, value.as_bytes(), b"IFEQ", old.as_bytes()]).await
        }
        Request::Increment(by) => driver.call(&[b"INCRBY", key, by.to_string().as_bytes()]).await,
        Request::CompareAndSet { .. } => Reply::Refused("Redis has no revisions".into()),
    }
}

/// Returns the outcome that a reply stands for.
pub(super) fn outcome(request: &Request, reply: Reply) -> Result<Outcome, UnansweredRequest> {
    match (request, reply) {
        (Request::Get, Reply::Nil) => Ok(Outcome::Value(None)),
        (Request::Get, Reply::Bytes(value)) => Ok(Outcome::Value(Some((text(&value), None)))),
        (Request::Put(_) | Request::Replace { .. }, reply) if reply == Reply::ok() => Ok(Outcome::Written(None)),
        (Request::Replace { .. }, Reply::Nil) => Ok(Outcome::ValueDiffers),
        (Request::Delete, Reply::Integer(count)) => Ok(Outcome::Deleted { existed: count == 1 }),
        (Request::Increment(_), Reply::Integer(value)) => Ok(Outcome::Counter { value, revision: None }),
        (Request::Increment(_), Reply::Refused(error)) if error.contains("not an integer") => Ok(Outcome::NotANumber),
        (_, Reply::Refused(text)) => Err(UnansweredRequest { text, unknown: false }),
        (_, Reply::Lost(text)) => Err(UnansweredRequest { text, unknown: true }),
        (request, other) => panic!("{request} was answered by {other:?}"),
    }
}

pub(super) fn text(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(bytes).into()
}
