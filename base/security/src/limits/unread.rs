//! Response bytes that callers have not read: a budget per address and per process, and a deadline per connection.
//!
//! HTTP/2 lets a caller close its window and keep the connection. Every response it asked for then stays in memory. A
//! share of the budget is attached to the bytes of each response, and is returned when the library has written the last
//! of them to the socket. That includes what the library buffers after it has taken the bytes from the body.

use crate::callers::caller::counted_address;
use archon_types::{ErrorDetail, ErrorKind};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Default size of a process's budget, in bytes.
pub const UNREAD_BYTES_MAX: usize = 128 * 1024 * 1024;
/// One address can use `1 / ADDRESS_PART` of the budget.
const ADDRESS_PART: usize = 4;
/// `1 / RESERVED_PART` of the budget is reserved for addresses that hold little.
const RESERVED_PART: usize = 4;
/// An address holds little up to this many bytes.
const LITTLE_BYTES: usize = 1024 * 1024;
/// Fixed cost of a response: headers, and the library's state of its stream.
const OVERHEAD_BYTES: usize = 1024;
/// Responses are handed to the library in slices of this size, so that progress is visible.
const SLICE_BYTES: usize = 64 * 1024;
/// A connection is closed if its peer takes nothing of its responses for this long.
const STALLED: Duration = Duration::from_secs(3);
/// A message of a response must be taken within this time. Streamed responses can pause as long.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before a refused caller retries, in milliseconds.
const RETRY_AFTER_MS: u64 = 100;

/// The budget of one process for responses that callers have not read. Clones share it.
#[derive(Clone, Debug)]
pub struct UnreadBudget(Arc<Totals>);

#[derive(Debug)]
struct Totals {
    bytes_max: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    used: usize,
    addresses: HashMap<IpAddr, usize>,
}

impl UnreadBudget {
    /// Creates a budget of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Totals { bytes_max, counts: Mutex::default() }))
    }

    /// Returns the bytes that are held now.
    pub fn used(&self) -> usize {
        self.0.counts.lock().used
    }

    /// Rejects a request before any work is done for it, if a response of `bytes` would have no room: zero where the length
    /// is not known yet.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`].
    pub fn check(&self, from: IpAddr, bytes: usize) -> Result<(), ErrorDetail> {
        let bytes = bytes.saturating_add(OVERHEAD_BYTES);
        self.0.fit(&self.0.counts.lock(), counted_address(from), bytes)
    }

    /// Takes `bytes` for responses to `from`, until the share is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if the budget has no room for them.
    pub fn take(&self, from: IpAddr, bytes: usize) -> Result<UnreadShare, ErrorDetail> {
        let (from, bytes) = (counted_address(from), bytes.saturating_add(OVERHEAD_BYTES));
        let mut counts = self.0.counts.lock();
        self.0.fit(&counts, from, bytes)?;
        counts.used += bytes;
        *counts.addresses.entry(from).or_default() += bytes;
        Ok(UnreadShare { budget: self.clone(), from, bytes })
    }
}

impl Totals {
    /// Checks that `bytes` more fit. A first response larger than the address's part passes if the budget has room.
    fn fit(&self, counts: &Counts, from: IpAddr, bytes: usize) -> Result<(), ErrorDetail> {
        let held = counts.addresses.get(&from).copied().unwrap_or(0);
        let total = held.saturating_add(bytes);
        let address_max = self.bytes_max / ADDRESS_PART;
        let left = if total <= LITTLE_BYTES { 0 } else { held.max(self.bytes_max / RESERVED_PART) };
        let (who, used, max) = if held > 0 && total > address_max {
            ("callers at this address have", held, address_max)
        } else if counts.used.saturating_add(bytes).saturating_add(left) > self.bytes_max {
            ("callers have", counts.used, self.bytes_max)
        } else {
            return Ok(());
        };
        let why =
            format!("{who} {used} of {max} bytes of responses unread, and this one needs {bytes}; read them first");
        Err(ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(RETRY_AFTER_MS))
    }
}

/// Bytes of the budget; dropping it returns them.
#[derive(Debug)]
#[must_use = "dropping the share returns its bytes at once"]
pub struct UnreadShare {
    budget: UnreadBudget,
    from: IpAddr,
    bytes: usize,
}

impl Drop for UnreadShare {
    fn drop(&mut self) {
        let mut counts = self.budget.0.counts.lock();
        counts.used -= self.bytes;
        if let Some(held) = counts.addresses.get_mut(&self.from) {
            *held -= self.bytes;
            if *held == 0 {
                counts.addresses.remove(&self.from);
            }
        }
    }
}

/// Responses of one connection that its peer has not read.
#[derive(Debug, Default)]
pub struct UnreadResponses(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// Slices that the peer has taken so far.
    taken: u64,
    /// Number of the last message.
    last: u64,
    messages: BTreeMap<u64, UnreadMessage>,
    /// Wakes the connection's task when the first message is added.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct UnreadMessage {
    since: Instant,
    /// The message is part of a streamed response.
    streamed: bool,
}

impl UnreadResponses {
    /// Counts a message of a response against `budget`. It is counted until its last slice is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if the budget has no room for it.
    pub fn hold(
        self: &Arc<Self>,
        budget: &UnreadBudget,
        from: IpAddr,
        message: Bytes,
        streamed: bool,
    ) -> Result<ResponseSlices, ErrorDetail> {
        let budget = budget.take(from, message.len())?;
        let mut progress = self.0.lock();
        progress.last += 1;
        let number = progress.last;
        progress.messages.insert(number, UnreadMessage { since: Instant::now(), streamed });
        let waker = progress.waker.take();
        drop(progress);
        if let Some(waker) = waker {
            waker.wake();
        }
        let share = Arc::new(MessageShare { responses: Arc::clone(self), number, _budget: budget });
        Ok(ResponseSlices { left: message, share })
    }
}

#[derive(Debug)]
struct MessageShare {
    responses: Arc<UnreadResponses>,
    number: u64,
    _budget: UnreadShare,
}

impl Drop for MessageShare {
    fn drop(&mut self) {
        self.responses.0.lock().messages.remove(&self.number);
    }
}

/// The slices of a message; each holds the message's share until it is dropped.
#[derive(Debug)]
pub struct ResponseSlices {
    left: Bytes,
    share: Arc<MessageShare>,
}

impl ResponseSlices {
    /// Returns whether all slices were returned.
    pub const fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Returns the number of bytes that are left.
    pub const fn len(&self) -> usize {
        self.left.len()
    }
}

impl Iterator for ResponseSlices {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.left.is_empty() {
            return None;
        }
        let data = self.left.split_to(self.left.len().min(SLICE_BYTES));
        Some(Bytes::from_owner(Slice { data, share: Arc::clone(&self.share) }))
    }
}

struct Slice {
    data: Bytes,
    share: Arc<MessageShare>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.share.responses.0.lock().taken += 1;
    }
}

/// Detects a peer that does not read its responses.
#[derive(Debug, Default)]
pub struct UnreadWatch {
    responses: Arc<UnreadResponses>,
    look: Option<ProgressCheck>,
}

#[derive(Debug)]
struct ProgressCheck {
    at: Pin<Box<Sleep>>,
    /// Slices taken at the last progress, and when that was.
    taken: u64,
    since: Instant,
}

impl UnreadWatch {
    /// Returns the responses that are watched.
    pub const fn responses(&self) -> &Arc<UnreadResponses> {
        &self.responses
    }

    /// Is ready once the peer has not read its responses for too long. The connection's task polls it.
    pub fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut progress = self.responses.0.lock();
            if progress.messages.is_empty() {
                self.look = None;
                progress.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            let now = Instant::now();
            let look = self.look.get_or_insert_with(|| ProgressCheck {
                at: Box::pin(sleep_until(now + STALLED)),
                taken: progress.taken,
                since: now,
            });
            if look.at.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if look.taken != progress.taken {
                (look.taken, look.since) = (progress.taken, now);
            }
            let streams = progress.messages.values().any(|message| message.streamed);
            let pause_max = if streams { READ_TIMEOUT } else { STALLED };
            let late = progress.messages.values().any(|message| now - message.since >= READ_TIMEOUT);
            if late || now - look.since >= pause_max {
                return Poll::Ready(());
            }
            look.at.as_mut().reset(now + STALLED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::net::Ipv4Addr;

    const MIB: usize = 1024 * 1024;

    fn at(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn message(bytes: usize) -> Bytes {
        vec![7; bytes].into()
    }

    #[test]
    fn message_counts_until_its_last_slice_is_dropped() {
        let (budget, responses) = (UnreadBudget::new(64 * MIB), Arc::<UnreadResponses>::default());
        let slices = responses.hold(&budget, at(1), message(MIB), false).unwrap();
        assert_eq!(budget.used(), MIB + OVERHEAD_BYTES);
        let mut slices: Vec<Bytes> = slices.collect();
        assert_eq!(slices.iter().map(Bytes::len).sum::<usize>(), MIB);
        // A library may split a slice again.
        let part = slices[0].slice(..10);
        slices.clear();
        assert_eq!(budget.used(), MIB + OVERHEAD_BYTES);
        drop(part);
        assert_eq!((budget.used(), budget.0.counts.lock().addresses.len()), (0, 0));
        assert!(responses.0.lock().messages.is_empty());
    }

    #[test]
    fn address_is_limited_to_its_part_of_the_budget() {
        let (budget, responses) = (UnreadBudget::new(16 * MIB), Arc::<UnreadResponses>::default());
        let hold = |from: u8, bytes: usize| responses.hold(&budget, at(from), message(bytes), false);
        let mut held: Vec<_> = (0..3).map(|_| hold(1, MIB).unwrap()).collect();
        let refusal = hold(1, MIB).unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Overloaded);
        assert!(refusal.message.contains("callers at this address"), "{refusal}");
        // Three addresses more leave the reserved part, and small responses still fit there.
        (2..5).for_each(|from| held.extend((0..3).map_while(|_| hold(from, MIB).ok())));
        assert!(budget.used() <= 12 * MIB, "{}", budget.used());
        held.push(hold(9, MIB / 2).unwrap());
        budget.check(at(9), 0).unwrap();
        held.clear();
        assert_eq!(budget.used(), 0);
        hold(1, 8 * MIB).expect("a single large response of an address that holds nothing");
    }

    async fn stalled(watch: &mut UnreadWatch) -> Duration {
        let began = Instant::now();
        poll_fn(|context| watch.poll_stalled(context)).await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_progress_is_stalled() {
        let (budget, mut watch) = (UnreadBudget::new(64 * MIB), UnreadWatch::default());
        let _held = watch.responses().hold(&budget, at(1), message(10), false).unwrap();
        let took = stalled(&mut watch).await;
        assert!((STALLED..STALLED * 2).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_has_the_read_timeout_and_streams_may_pause() {
        let (budget, mut watch) = (UnreadBudget::new(64 * MIB), UnreadWatch::default());
        let slices = watch.responses().hold(&budget, at(1), message(4 * MIB), false).unwrap();
        let reading = tokio::spawn(async move {
            for slice in slices {
                tokio::time::sleep(STALLED / 3).await;
                drop(slice);
            }
        });
        let took = stalled(&mut watch).await;
        assert!((READ_TIMEOUT..READ_TIMEOUT + 2 * STALLED).contains(&took), "{took:?}");
        reading.abort();
        let _ = reading.await;

        let mut watch = UnreadWatch::default();
        let _page = watch.responses().hold(&budget, at(1), message(10), true).unwrap();
        let took = stalled(&mut watch).await;
        assert!((READ_TIMEOUT..READ_TIMEOUT + 2 * STALLED).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn watch_is_woken_by_the_first_response() {
        let (budget, mut watch) = (UnreadBudget::new(64 * MIB), UnreadWatch::default());
        let responses = Arc::clone(watch.responses());
        let watching = tokio::spawn(async move { stalled(&mut watch).await });
        tokio::time::sleep(STALLED * 10).await;
        assert!(!watching.is_finished());
        let _held = responses.hold(&budget, at(1), message(10), false).unwrap();
        tokio::time::timeout(STALLED * 3, watching).await.expect("a stalled connection").unwrap();
    }
}
