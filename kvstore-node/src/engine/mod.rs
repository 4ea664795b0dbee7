//! Storage of applied effects: the engines behind [`archon_kv::engine::Engine`].

mod compactor;
mod damage;
mod disk_space;
mod durable;
mod kind;
mod list_check;
mod lsm;
mod lsm_error;
mod open;
mod pause;
mod read_view;
mod sled;
mod table_check;
mod table_files;

#[cfg(test)]
mod compactor_tests;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod list_check_tests;
#[cfg(test)]
mod lsm_tests;
#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod sled_tests;

pub(crate) use self::damage::note_damage;
pub(crate) use self::disk_space::{RESERVE_BYTES, disk_bytes, disk_full, is_full};
pub use self::kind::{EngineKind, UnknownEngine};
pub use self::lsm::LsmEngine;
pub(crate) use self::open::note_clean_end;
pub use self::open::{EngineConfig, open_or_quarantine};
pub use self::sled::SledEngine;
#[cfg(test)]
pub(crate) use archon_kv::MemoryEngine;
use archon_kv::engine::is_empty_range;
pub use archon_kv::engine::{
    Change, ClearStep, ENGINE_KEY_BYTES_MAX, Engine, EngineError, KeyBounds, Page, PageLimit, Row, check_size, next_in,
};
