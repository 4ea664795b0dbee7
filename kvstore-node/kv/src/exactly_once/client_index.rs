//! Client index: the clients that a partition remembers, in its leader's memory, with the bound on their number.
//!
//! The bound is enforced before a record for one more client is written: the least recently used clients are forgotten
//! first, by an effect of its own ahead of the operation's, and a leader that cannot do that yet refuses the new
//! client. The windows alone ([`super::dedup`]) decide whether an operation is *applied*: losing the index with a
//! leadership costs reading it again, and never applies an operation twice.

use super::dedup::{DedupLimits, forget};
use crate::operations::effect::Effect;
use crate::rows::view::{View, ViewError};
use archon_types::{ClientId, ErrorDetail, ErrorKind, Millis};
use std::collections::{BTreeMap, BTreeSet};

/// Precision of a client's last use in the index, in milliseconds: eviction works in minutes, so not every operation is
/// noted.
const TOUCH_MS: u64 = 1_000;
/// Precision once the index is half full, when eviction must distinguish clients used seconds apart.
const TOUCH_PRESSED_MS: u64 = 10;
/// Windows read together when an index is read.
const PAGE_ROWS: usize = 32;
/// Most clients that one effect forgets.
const FORGET_CLIENTS_MAX: usize = 64;
/// Inverse of the share of clients that is forgotten at once when there are too many.
const FORGET_PART: usize = 64;
const RETRY_AFTER_MS: u64 = 20;

/// Clients by their last use.
#[derive(Clone, Debug, Default)]
pub struct ClientIndex {
    last: BTreeMap<ClientId, Millis>,
    by_last: BTreeSet<(Millis, ClientId)>,
    /// First client that has not been read.
    unread: Option<ClientId>,
}

/// Action needed before an operation of a client may be evaluated.
#[derive(Clone, PartialEq, Debug)]
pub enum ClientCapacity {
    /// None.
    Free,
    /// Other clients are forgotten first.
    Forget(ForgottenClients),
    /// Unknown yet: the caller reads more rows and asks again, or refuses.
    Unknown(ErrorDetail),
}

/// Clients to be forgotten together.
#[derive(Clone, PartialEq, Debug)]
pub struct ForgottenClients {
    /// The clients; they are in the index until [`ClientIndex::remove`].
    pub clients: Vec<ClientId>,
    /// Effect that forgets them; `None` if they have no records.
    pub effect: Option<Effect>,
}

impl ClientIndex {
    /// Creates the index of a new leader, which has yet to [`read`](Self::read) its partition's clients.
    pub fn unread() -> Self {
        Self { unread: Some(ClientId::NIL), ..Self::default() }
    }

    /// Reads more windows, about as many as the limits allow at once. Returns whether there is more to read.
    ///
    /// # Errors
    /// [`ViewError`] if rows cannot be read.
    pub fn read(&mut self, view: &dyn View, limits: &DedupLimits) -> Result<bool, ViewError> {
        let mut read = 0;
        while let Some(from) = self.unread
            && read < limits.read_rows_max.max(1)
        {
            let (clients, next) = view.clients(from, PAGE_ROWS)?;
            // Forgotten clients are read too, and are not among the found ones.
            read += if next.is_some() { PAGE_ROWS } else { clients.len() };
            clients.into_iter().for_each(|(client, last)| self.touch(client, last, limits));
            self.unread = next;
        }
        Ok(self.unread.is_some())
    }

    /// Returns whether there is more to read.
    pub const fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Returns whether the client is known to have a record.
    pub fn knows(&self, client: ClientId) -> bool {
        self.last.contains_key(&client)
    }

    /// Returns the action needed before an operation of `client` may be recorded at log time `at` within the bound on
    /// clients. Call this before the operation is evaluated.
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
            if view.window(client)?.is_some() {
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
        // Some more than needed, so that not every new client costs an entry of its own.
        let least = self.last.len() - clients_max + 1;
        self.forget_oldest(least + clients_max / FORGET_PART, view, at, limits).map(ClientCapacity::Forget)
    }

    /// Returns whether there may be clients [`to forget`](Self::to_forget).
    pub fn has_to_forget(&self, at: Millis, limits: &DedupLimits) -> bool {
        let aged = |(last, _): &(Millis, ClientId)| at.since(*last) > limits.age_ms_max;
        !self.is_unread() && (self.by_last.first().is_some_and(aged) || self.last.len() > limits.clients_max.max(1))
    }

    /// Returns the clients to forget at log time `at`, for their age or because there are too many; `None` if there are
    /// none, or not all clients are known.
    ///
    /// # Errors
    /// [`ViewError`] if rows cannot be read.
    pub fn to_forget(
        &self,
        view: &dyn View,
        at: Millis,
        limits: &DedupLimits,
    ) -> Result<Option<ForgottenClients>, ViewError> {
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

    /// Forgets the least recently used clients: at most `count`.
    fn forget_oldest(
        &self,
        count: usize,
        view: &dyn View,
        at: Millis,
        limits: &DedupLimits,
    ) -> Result<ForgottenClients, ViewError> {
        let mut forgetting = ForgottenClients { clients: Vec::new(), effect: None };
        for (_, client) in self.by_last.iter().take(count.min(FORGET_CLIENTS_MAX)) {
            forgetting.effect = forget(*client, forgetting.effect, view, at, limits)?;
            forgetting.clients.push(*client);
        }
        Ok(forgetting)
    }

    /// Records an operation of the client at log time `at`.
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

    /// Removes clients that are being forgotten.
    pub fn remove(&mut self, clients: &[ClientId]) {
        for client in clients {
            if let Some(before) = self.last.remove(client) {
                self.by_last.remove(&(before, *client));
            }
        }
    }

    /// Returns the number of clients known.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Returns whether no client is known.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

#[cfg(test)]
#[path = "client_index_tests.rs"]
mod tests;
