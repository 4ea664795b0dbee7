//! Storage of applied effects: the engines behind [`archon_kv::engine::Engine`].

mod disk_space;
mod durable;
mod fjall;
mod journal;
mod kind;
mod open;
mod sled;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod particular;

pub(crate) use self::disk_space::{RESERVE_BYTES, disk_bytes, disk_full, is_full};
pub use self::fjall::FjallEngine;
pub use self::kind::{EngineKind, UnknownEngine};
pub(crate) use self::open::note_clean_end;
pub use self::open::{EngineConfig, open_or_quarantine};
pub use self::sled::SledEngine;
#[cfg(test)]
pub(crate) use archon_kv::MemoryEngine;
use archon_kv::engine::is_empty_range;
pub use archon_kv::engine::{
    Between, Change, Cleared, ENGINE_KEY_BYTES_MAX, Engine, EngineError, Page, PageLimit, Row, check_size, next_in,
};
