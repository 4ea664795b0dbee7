//! The exactly-once table's rows in memory.
//!
//! A client's outcomes come in the order of its numbers, nearly always, and go in that order once it is done with them: a
//! queue is what they are.

use super::row::{CLIENT_HEAD_KEY_BYTES, CLIENT_OUTCOME_KEY_BYTES, KIND_CLIENT};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque, btree_map};
use std::ops::{Bound, RangeBounds};

/// A client, and the number of one of its operations; without one, its head. In the order of the rows' keys.
pub(super) type ClientKey = (u128, Option<u64>);

/// The client and number in a key of the exactly-once table; `None` for any other key.
pub(super) fn client_key(key: &[u8]) -> Option<ClientKey> {
    let [KIND_CLIENT, rest @ ..] = key else { return None };
    if key.len() != CLIENT_HEAD_KEY_BYTES && key.len() != CLIENT_OUTCOME_KEY_BYTES {
        return None;
    }
    let (client, number) = rest.split_first_chunk::<16>()?;
    let number = number.first_chunk::<8>().map(|number| u64::from_be_bytes(*number));
    Some((u128::from_be_bytes(*client), number))
}

/// Rows by client and number.
#[derive(Debug)]
pub(super) struct ClientRows<V> {
    clients: BTreeMap<u128, Client<V>>,
}

/// The rows of one client, of which there is at least one.
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

    /// Where an outcome is, or would be.
    fn place(&self, number: u64) -> Result<usize, usize> {
        match self.outcomes.back() {
            Some((last, ..)) if *last >= number => self.outcomes.binary_search_by_key(&number, |(number, ..)| *number),
            _ => Err(self.outcomes.len()),
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
            (None, Ok(at)) => drop(self.outcomes.remove(at)),
            (None, Err(_)) => {}
        }
    }
}

impl<V> ClientRows<V> {
    /// Whether there is no row.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The row of a client with this number, or its head.
    pub(super) fn get(&self, (client, number): ClientKey) -> Option<&V> {
        let client = self.clients.get(&client)?;
        match number {
            None => client.head.as_ref().map(|(_, value)| value),
            Some(number) => client.outcomes.get(client.place(number).ok()?).map(|(.., value)| value),
        }
    }

    /// Sets a row to what `decide` makes of the present one, or removes it. `key` is that of `client` and `number`.
    pub(super) fn update(
        &mut self,
        key: Bytes,
        (client, number): ClientKey,
        decide: impl FnOnce(&Bytes, Option<&V>) -> Option<V>,
    ) {
        match self.clients.entry(client) {
            btree_map::Entry::Occupied(mut occupied) => {
                occupied.get_mut().update(key, number, decide);
                if occupied.get().is_empty() {
                    occupied.remove();
                }
            }
            btree_map::Entry::Vacant(vacant) => {
                let mut client = Client::default();
                client.update(key, number, decide);
                if !client.is_empty() {
                    vacant.insert(client);
                }
            }
        }
    }

    /// Removes a row if it is there and `decide` is for it.
    pub(super) fn remove_if(&mut self, (client, number): ClientKey, decide: impl FnOnce(&V) -> bool) {
        let btree_map::Entry::Occupied(mut occupied) = self.clients.entry(client) else { return };
        let client = occupied.get_mut();
        match number {
            None => drop(client.head.take_if(|(_, value)| decide(value))),
            Some(number) => {
                if let Ok(at) = client.place(number)
                    && decide(&client.outcomes[at].2)
                {
                    client.outcomes.remove(at);
                }
            }
        }
        if occupied.get().is_empty() {
            occupied.remove();
        }
    }

    /// The rows from `from` to `to`, in order of key.
    pub(super) fn range(&self, from: Bound<ClientKey>, to: Bound<ClientKey>) -> impl Iterator<Item = (&Bytes, &V)> {
        // Clients of which some row may lie between.
        let client = |bound: Bound<ClientKey>| match bound {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included((client, _)) | Bound::Excluded((client, _)) => Bound::Included(client),
        };
        self.clients.range((client(from), client(to))).flat_map(move |(&id, client)| {
            let within = move |number: Option<u64>| (from, to).contains(&(id, number));
            let before = |number: u64| match from {
                Bound::Unbounded => false,
                Bound::Included(from) => (id, Some(number)) < from,
                Bound::Excluded(from) => (id, Some(number)) <= from,
            };
            let start = client.outcomes.partition_point(|(number, ..)| before(*number));
            let outcomes = client.outcomes.range(start..).take_while(move |(number, ..)| within(Some(*number)));
            let head = client.head.as_ref().filter(|_| within(None)).map(|(key, value)| (key, value));
            head.into_iter().chain(outcomes.map(|(_, key, value)| (key, value)))
        })
    }

    /// All rows, in order of key.
    pub(super) fn into_rows(self) -> impl Iterator<Item = (Bytes, V)> {
        self.clients.into_values().flat_map(|client| {
            client.head.into_iter().chain(client.outcomes.into_iter().map(|(_, key, value)| (key, value)))
        })
    }
}
