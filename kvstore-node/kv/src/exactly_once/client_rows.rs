//! Rows of the exactly-once table in memory.
//!
//! A client's outcomes arrive in order of number, nearly always, and are removed in that order once the client has
//! confirmed them, so they are kept in a queue.

use crate::engine::is_empty_range;
use crate::rows::row::{CLIENT_HEAD_KEY_BYTES, CLIENT_OUTCOME_KEY_BYTES, KIND_CLIENT};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeBounds};

/// Client and operation number; the client's head has no number. Ordered like the row keys.
type ClientKey = (u128, Option<u64>);

/// Returns the client and number in a key of the exactly-once table; `None` for any other key.
pub(crate) fn client_key(key: &[u8]) -> Option<ClientKey> {
    let [KIND_CLIENT, rest @ ..] = key else { return None };
    if key.len() != CLIENT_HEAD_KEY_BYTES && key.len() != CLIENT_OUTCOME_KEY_BYTES {
        return None;
    }
    let (client, number) = rest.split_first_chunk::<16>()?;
    let number = number.first_chunk::<8>().map(|number| u64::from_be_bytes(*number));
    Some((u128::from_be_bytes(*client), number))
}

/// Capacity kept for a client's outcomes, in outcomes: it is soon used again.
const OUTCOMES_KEPT: usize = 64;

/// Rows by client and number.
#[derive(Debug)]
pub(crate) struct ClientRows<V> {
    clients: BTreeMap<u128, Client<V>>,
}

/// Rows of one client, at least one.
#[derive(Debug)]
struct Client<V> {
    head: Option<(Bytes, V)>,
    /// In order of number.
    outcomes: VecDeque<(u64, Bytes, V)>,
}

impl<V> Default for Client<V> {
    fn default() -> Self {
        Self { head: None, outcomes: VecDeque::new() }
    }
}

impl<V> Default for ClientRows<V> {
    fn default() -> Self {
        Self { clients: BTreeMap::new() }
    }
}

impl<V> Client<V> {
    fn is_empty(&self) -> bool {
        self.head.is_none() && self.outcomes.is_empty()
    }

    /// Returns the index of an outcome, or its insertion point.
    fn place(&self, number: u64) -> Result<usize, usize> {
        match self.outcomes.back() {
            Some((last, ..)) if *last >= number => self.outcomes.binary_search_by_key(&number, |(number, ..)| *number),
            _ => Err(self.outcomes.len()),
        }
    }

    /// Removes an outcome, and excess capacity after a burst, which no budget counts.
    fn remove(&mut self, at: usize) {
        self.outcomes.remove(at);
        let kept = self.outcomes.len().max(OUTCOMES_KEPT);
        if kept < self.outcomes.capacity() / 4 {
            self.outcomes.shrink_to(2 * kept);
        }
    }

    fn update(&mut self, key: Bytes, number: Option<u64>, decide: impl FnOnce(&Bytes, Option<&V>) -> Option<V>) {
        let Some(number) = number else {
            self.head = decide(&key, self.head.as_ref().map(|(_, value)| value)).map(|value| (key, value));
            return;
        };
        let place = self.place(number);
        let present = place.ok().and_then(|at| self.outcomes.get(at)).map(|(.., value)| value);
        match (decide(&key, present), place) {
            (Some(value), Ok(at)) => self.outcomes[at] = (number, key, value),
            (Some(value), Err(at)) => self.outcomes.insert(at, (number, key, value)),
            (None, Ok(at)) => self.remove(at),
            (None, Err(_)) => {}
        }
    }
}

impl<V> ClientRows<V> {
    /// Returns whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns the row of a client with this number, or its head.
    pub(crate) fn get(&self, (client, number): ClientKey) -> Option<&V> {
        let client = self.clients.get(&client)?;
        match number {
            None => client.head.as_ref().map(|(_, value)| value),
            Some(number) => client.outcomes.get(client.place(number).ok()?).map(|(.., value)| value),
        }
    }

    /// Sets a row to the result of `decide` on the present one, or removes it. `key` is the key of `client` and
    /// `number`.
    pub(crate) fn update(
        &mut self,
        key: Bytes,
        (client, number): ClientKey,
        decide: impl FnOnce(&Bytes, Option<&V>) -> Option<V>,
    ) {
        let rows = self.clients.entry(client).or_default();
        rows.update(key, number, decide);
        if rows.is_empty() {
            self.clients.remove(&client);
        }
    }

    /// Removes a row if it exists and `condition` holds.
    pub(crate) fn remove_if(&mut self, (client, number): ClientKey, condition: impl FnOnce(&V) -> bool) {
        let Some(rows) = self.clients.get_mut(&client) else { return };
        match number {
            None => drop(rows.head.take_if(|(_, value)| condition(value))),
            Some(number) => {
                if let Ok(at) = rows.place(number)
                    && condition(&rows.outcomes[at].2)
                {
                    rows.remove(at);
                }
            }
        }
        if rows.is_empty() {
            self.clients.remove(&client);
        }
    }

    /// Returns the rows from `from` to `to`, in order of key.
    pub(crate) fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> impl Iterator<Item = (&Bytes, &V)> {
        let between = clients_between(from, to).map(|(from, to)| self.between(from, to));
        between.into_iter().flatten()
    }

    fn between(&self, from: Bound<ClientKey>, to: Bound<ClientKey>) -> impl Iterator<Item = (&Bytes, &V)> {
        // Clients that may have rows in the range.
        let client = |bound: Bound<ClientKey>| match bound {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included((client, _)) | Bound::Excluded((client, _)) => Bound::Included(client),
        };
        self.clients.range((client(from), client(to))).flat_map(move |(&id, client)| {
            let within = move |number: Option<u64>| (from, to).contains(&(id, number));
            let before = |number: u64| !(from, Bound::Unbounded).contains(&(id, Some(number)));
            let start = client.outcomes.partition_point(|(number, ..)| before(*number));
            let outcomes = client.outcomes.range(start..).take_while(move |(number, ..)| within(Some(*number)));
            let head = client.head.as_ref().filter(|_| within(None)).map(|(key, value)| (key, value));
            head.into_iter().chain(outcomes.map(|(_, key, value)| (key, value)))
        })
    }
}

/// Returns the position of any bytes among the keys of the exactly-once table: right before a key, at it, or right
/// after it.
fn key_at(bytes: &[u8]) -> Option<(ClientKey, Ordering)> {
    let rest = match bytes.first() {
        Some(kind) if *kind > KIND_CLIENT => return None, // after all of them
        Some(&KIND_CLIENT) => &bytes[1..],
        _ => return Some(((0, None), Ordering::Less)),
    };
    let (client, number) = rest.split_at(rest.len().min(16));
    let mut padded = [0; 16];
    padded[..client.len()].copy_from_slice(client);
    let client_number = u128::from_be_bytes(padded);
    if number.is_empty() {
        let order = if client.len() == 16 { Ordering::Equal } else { Ordering::Less };
        return Some(((client_number, None), order));
    }
    let (number, extra) = number.split_at(number.len().min(8));
    let mut padded = [0; 8];
    padded[..number.len()].copy_from_slice(number);
    let order = match number.len() {
        8 if extra.is_empty() => Ordering::Equal,
        8 => Ordering::Greater,
        _ => Ordering::Less,
    };
    Some(((client_number, Some(u64::from_be_bytes(padded))), order))
}

/// Returns the keys of the exactly-once table between two bounds, if there can be any.
fn clients_between(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Option<(Bound<ClientKey>, Bound<ClientKey>)> {
    let from = match from {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(bytes) => match key_at(bytes)? {
            (key, Ordering::Less | Ordering::Equal) => Bound::Included(key),
            (key, Ordering::Greater) => Bound::Excluded(key),
        },
        Bound::Excluded(bytes) => match key_at(bytes)? {
            (key, Ordering::Less) => Bound::Included(key),
            (key, Ordering::Equal | Ordering::Greater) => Bound::Excluded(key),
        },
    };
    let to = match to {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(bytes) => match key_at(bytes) {
            None => Bound::Unbounded,
            Some((key, Ordering::Less)) => Bound::Excluded(key),
            Some((key, Ordering::Equal | Ordering::Greater)) => Bound::Included(key),
        },
        Bound::Excluded(bytes) => match key_at(bytes) {
            None => Bound::Unbounded,
            Some((key, Ordering::Less | Ordering::Equal)) => Bound::Excluded(key),
            Some((key, Ordering::Greater)) => Bound::Included(key),
        },
    };
    (!is_empty_range(&from, &to)).then_some((from, to))
}
