//! Whom a partition remembers, in its leader's memory: the bound on how many that are, and who is forgotten next.
//!
//! The bound is kept before anything is recorded for one more client: the least recently used ones are forgotten first, by
//! an effect of its own ahead of the operation's, and a leader that cannot do that yet refuses the newcomer. Whether an
//! operation is *applied* is decided by the rows alone ([`super::dedup`]): an index that is lost with a leadership costs
//! the reading of it, and never an operation applied twice.

use super::dedup::{DedupLimits, OUTCOMES_MAX, forget};
use super::effect::{EFFECT_CHANGES_MAX, Effect};
use super::row::{
    CLIENT_HEAD_KEY_BYTES, ClientHead, KIND_CLIENT, client_head_bytes, client_head_key, decode_client_key,
};
use super::view::{View, ViewError};
use crate::engine::PageLimit;
use archon_types::{ClientId, ErrorDetail, ErrorKind, Millis, ScanOrder};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// How old the index's word on a client's last use may be, in milliseconds: for advice about minutes not every operation
/// need be noted.
const TOUCH_MS: u64 = 1_000;
/// The same once the index is half full, when whoever is used is to be told from those who were used a second ago.
const TOUCH_PRESSED_MS: u64 = 10;
/// Rows read together when an index is read.
const PAGE_ROWS: usize = 32;
/// Most clients that one effect forgets.
const FORGET_CLIENTS_MAX: usize = 64;
/// Rows after which an effect forgets no further client.
const FORGET_ROWS_MAX: usize = 1_024;
// An effect that forgets clients is one that is written: the last client may bring all its rows.
const _: () = assert!(FORGET_ROWS_MAX + OUTCOMES_MAX as usize + 2 <= EFFECT_CHANGES_MAX);
/// Which part of the clients is forgotten at once when there are too many.
const FORGET_PART: usize = 64;
const RETRY_AFTER_MS: u64 = 20;

/// Clients by their last use.
#[derive(Clone, Debug, Default)]
pub struct ClientIndex {
    last: BTreeMap<ClientId, Millis>,
    by_last: BTreeSet<(Millis, ClientId)>,
    /// From here on the rows have not been read.
    unread: Option<Bytes>,
}

/// What must happen before an operation of a client may be evaluated.
#[derive(Clone, PartialEq, Debug)]
pub enum ClientCapacity {
    /// Nothing.
    Free,
    /// Others are forgotten first.
    Forget(Forgetting),
    /// It is not known yet whether there is room: to be asked again once more was read, or refused.
    Unknown(ErrorDetail),
}

/// Clients to be forgotten together.
#[derive(Clone, PartialEq, Debug)]
pub struct Forgetting {
    /// Who; they are in the index until [`ClientIndex::remove`].
    pub clients: Vec<ClientId>,
    /// What forgets them; `None` if nothing is known of them.
    pub effect: Option<Effect>,
}

impl ClientIndex {
    /// The index of a new leader, which is yet to [`read`](Self::read) whom its partition remembers.
    pub fn unread() -> Self {
        Self { unread: Some(Bytes::from_static(&[KIND_CLIENT])), ..Self::default() }
    }

    /// Reads on, about as many rows as the limits say for once. Of a client's outcomes no more are read than lie on one small
    /// page with its head. Returns whether there is more to read.
    ///
    /// # Errors
    /// [`ViewError`] if rows cannot be read.
    pub fn read(&mut self, view: &dyn View, limits: &DedupLimits) -> Result<bool, ViewError> {
        let mut rows = 0;
        while let Some(from) = &self.unread
            && rows < limits.read_rows_max.max(1)
        {
            let limit = PageLimit { rows_max: PAGE_ROWS, bytes_max: usize::MAX };
            let page = view.page(Bound::Included(from), &[KIND_CLIENT + 1], ScanOrder::Ascending, limit)?;
            let mut last = None;
            for row in &page.rows {
                let (client, _) = decode_client_key(&row.key)?;
                if row.key.len() == CLIENT_HEAD_KEY_BYTES {
                    self.touch(client, ClientHead::decode(&row.value)?.last, limits);
                }
                last = Some(client);
            }
            rows += page.rows.len();
            self.unread = last.filter(|_| page.more).and_then(next_head);
        }
        Ok(self.unread.is_some())
    }

    /// Whether there is more to read.
    pub const fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Whether the client is known to be remembered.
    pub fn knows(&self, client: ClientId) -> bool {
        self.last.contains_key(&client)
    }

    /// Whether one operation of `client` may be recorded at log time `at` without more clients being remembered than may
    /// be; to be asked before it is evaluated.
    ///
    /// # Errors
    /// [`ViewError`] if rows cannot be read.
    pub fn capacity_for(
        &self,
        client: ClientId,
        view: &dyn View,
        at: Millis,
        limits: &DedupLimits,
    ) -> Result<ClientCapacity, ViewError> {
        if self.knows(client) {
            return Ok(ClientCapacity::Free);
        }
        if self.is_unread() {
            if view.get(&client_head_bytes(client))?.is_some() {
                return Ok(ClientCapacity::Free);
            }
            let why = "the partition's new leader still reads whom it remembers; it takes new clients once it has";
            let detail = ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(RETRY_AFTER_MS);
            return Ok(ClientCapacity::Unknown(detail));
        }
        let clients_max = limits.clients_max.max(1);
        if self.last.len() < clients_max {
            return Ok(ClientCapacity::Free);
        }
        // Some more than one, so that not every newcomer costs an entry of its own.
        let least = self.last.len() - clients_max + 1;
        self.forget_oldest(least + clients_max / FORGET_PART, view, at, limits).map(ClientCapacity::Forget)
    }

    /// Whether there may be somebody [`to forget`](Self::to_forget).
    pub fn has_to_forget(&self, at: Millis, limits: &DedupLimits) -> bool {
        let aged = |(last, _): &(Millis, ClientId)| at.since(*last) > limits.age_ms_max;
        !self.is_unread() && (self.by_last.first().is_some_and(aged) || self.last.len() > limits.clients_max.max(1))
    }

    /// Those who are to be forgotten at log time `at` for their age, or because there are too many; `None` if there are
    /// none, or not all are known.
    ///
    /// # Errors
    /// [`ViewError`] if rows cannot be read.
    pub fn to_forget(
        &self,
        view: &dyn View,
        at: Millis,
        limits: &DedupLimits,
    ) -> Result<Option<Forgetting>, ViewError> {
        if self.is_unread() {
            return Ok(None);
        }
        let aged = self.by_last.iter().take(FORGET_CLIENTS_MAX);
        let aged = aged.take_while(|(last, _)| at.since(*last) > limits.age_ms_max).count();
        match aged.max(self.last.len().saturating_sub(limits.clients_max.max(1))) {
            0 => Ok(None),
            count => self.forget_oldest(count, view, at, limits).map(Some),
        }
    }

    /// At least one client if there is one, at most `count`, and fewer if they have many rows.
    fn forget_oldest(
        &self,
        count: usize,
        view: &dyn View,
        at: Millis,
        limits: &DedupLimits,
    ) -> Result<Forgetting, ViewError> {
        let mut forgetting = Forgetting { clients: Vec::new(), effect: None };
        for (_, client) in self.by_last.iter().take(count.min(FORGET_CLIENTS_MAX)) {
            if forgetting.effect.as_ref().is_some_and(|effect| effect.changes.len() >= FORGET_ROWS_MAX) {
                break;
            }
            forgetting.effect = forget(*client, forgetting.effect, view, at, limits)?;
            forgetting.clients.push(*client);
        }
        Ok(forgetting)
    }

    /// Takes in that an operation of the client was recorded at log time `at`.
    pub fn touch(&mut self, client: ClientId, at: Millis, limits: &DedupLimits) {
        let pressed = self.last.len().saturating_mul(2) > limits.clients_max;
        let noted_ms = if pressed { TOUCH_PRESSED_MS } else { TOUCH_MS };
        match self.last.get_mut(&client) {
            Some(before) if at.since(*before) < noted_ms => return,
            Some(before) => {
                self.by_last.remove(&(*before, client));
                *before = at;
            }
            None => {
                self.last.insert(client, at);
            }
        }
        self.by_last.insert((at, client));
    }

    /// Takes in that clients are being forgotten.
    pub fn remove(&mut self, clients: &[ClientId]) {
        for client in clients {
            if let Some(before) = self.last.remove(client) {
                self.by_last.remove(&(before, *client));
            }
        }
    }

    /// Clients known.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

/// The first key that the head of a client after this one may have; `None` if there can be none.
fn next_head(client: ClientId) -> Option<Bytes> {
    let next = client.get().as_u128().checked_add(1)?;
    Some(client_head_key(ClientId::new(uuid::Uuid::from_u128(next))))
}

#[cfg(test)]
#[path = "client_index_tests.rs"]
mod tests;
