//! Backups of tables. `docs/operate/backups.md` specifies the format.
//!
//! | module | contents |
//! |---|---|
//! | `block` | files of entries: blocks with checksums |
//! | `manifest` | the manifest: list of files and tables |
//! | `store` | storage of backups: a directory or an object store |
//! | `trouble` | problems of object stores, with remedies |
//! | `begun` | destination checks and resumption |
//! | `create` | creation from a running cluster, one snapshot per partition |
//! | `earlier` | reuse of files of an earlier backup |
//! | `verify` | complete verification, without a cluster |
//! | `restore` | restore into new tables |
//! | `unfinished` | marker of tables with an unfinished restore |

mod base_backup;
mod begun;
mod block;
mod create;
mod error;
mod left;
mod manifest;
mod pace;
mod progress;
mod restore;
mod restore_marker;
mod store;
mod trouble;
mod verify;

pub use block::{BLOCK_BYTES_MAX, FORMAT};
pub use create::{CreateOptions, FinishedBackup, SkippedTable, create};
pub use error::{BackupError, Damage};
pub use manifest::{Manifest, Piece, TableBackup};
pub use progress::Progress;
pub use restore::{RestoreOptions, RestoredTable, restore};
pub use restore_marker::check_whole;
pub use store::Store;
pub use trouble::StoreTrouble;
pub use verify::{BackupSummary, show, verify};
