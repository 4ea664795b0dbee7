//! Backups of tables. What a backup is made of, byte for byte, stands in `docs/BACKUPS.md`.
//!
//! | module | |
//! |---|---|
//! | `block` | files of entries: blocks with checksums |
//! | `manifest` | what says which files there are, and what is in them |
//! | `store` | where a backup is kept: in a directory, or in an object store |
//! | `trouble` | what may be wrong with an object store, and what to do about it |
//! | `begun` | where a backup may begin or go on |
//! | `create` | takes one from a running cluster: per partition one snapshot |
//! | `earlier` | which files of an earlier backup are taken over, where nothing has changed since |
//! | `verify` | reads all of one, without a cluster |
//! | `restore` | writes one into new tables |
//! | `unfinished` | how a table says that it is not restored to its end, and which files are |

mod begun;
mod block;
mod create;
mod earlier;
mod error;
mod left;
mod manifest;
mod pace;
mod progress;
mod restore;
mod store;
mod trouble;
mod unfinished;
mod verify;

pub use block::{BLOCK_BYTES_MAX, FORMAT};
pub use create::{CreateOptions, LeftOut, Taken, create};
pub use error::{BackupError, Damage};
pub use manifest::{Manifest, Piece, TableBackup};
pub use progress::Progress;
pub use restore::{RestoreOptions, RestoredTable, restore};
pub use store::Store;
pub use trouble::StoreTrouble;
pub use unfinished::check_whole;
pub use verify::{BackupSummary, show, verify};
