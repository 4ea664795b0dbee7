//! Callers: their identities, their rights, and calls on behalf of others.

pub(crate) mod beat_key;
pub(crate) mod behalf;
pub(crate) mod caller;
pub(crate) mod identity;
pub mod rights;
