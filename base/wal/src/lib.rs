//! One write-ahead log per process, shared by many streams.
//!
//! A *stream* is a sequence of records with consecutive numbers, plus a few small *metas*. Any number of streams
//! share one log, so one write makes the records of all of them durable: the writer thread takes the queued batches,
//! writes them with one durable write, and calls back. There is no timer; the next group gathers during a write.
//!
//! ```no_run
//! use archon_wal::{StreamId, Wal, WalBatch, WalConfig};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (wal, recovered) = Wal::open("data/wal".as_ref(), WalConfig::default())?;
//! assert!(recovered.damaged_streams().is_empty());
//! let stream = StreamId(7);
//! let next = recovered.streams.get(&stream).and_then(|s| s.bounds).map_or(1, |b| b.last + 1);
//! let mut batch = WalBatch::new();
//! batch.put(stream, next, "an effect".into()).meta(stream, 0, "epoch 3".into());
//! wal.append(batch, Box::new(|result| println!("durable: {result:?}")))?;
//! wal.close(std::time::Duration::from_secs(10))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! * A batch is whole or absent after any crash, and every batch with an `Ok` callback is there. Pending ones may be
//!   there too.
//! * Everything that [`Wal::open`] reports is durable, even if a failed sync ended the previous process.
//! * A failed write or sync of the log ends the process; it is never retried.
//! * A torn end is cut. A note of the last durable batch distinguishes it from damage of the last write, unless the
//!   power failed before the system wrote the note to disk. Any other checksum failure is [`Damage`]: the log opens,
//!   and streams that are not proven whole are closed for writing until they are dropped.
//! * Long-lived records do not retain the whole log: beyond [`kept_bytes_max`](WalConfig::kept_bytes_max) the oldest
//!   are rewritten at its end.
//! * Memory and queue are bounded; a full disk makes the log read-only until space returns, with a reserve for
//!   [`urgent`](WalBatch::urgent) batches.
//!
//! # Parts
//!
//! | file | contents |
//! |---|---|
//! | `wal` | the handle of callers |
//! | `batch`, `queue`, `writer` | write path: appended batches, the queue, the writer thread |
//! | `read` | read path |
//! | `index`, `tail` | index of durable data; rules of a stream's numbers (pure) |
//! | `format`, `mark` | disk format; note of the last durable batch |
//! | `recover`, `replay`, `report` | recovery: I/O, its pure part, its results |
//! | `relocate` | selection of old records to rewrite at the end |
//! | `blocks` | write buffer of whole blocks |
//! | `segment`, `segment_pool`, `shortage`, [`disk`] | segment files; prepared files; reasons for their lack; file system trait |
//! | `config`, `error`, `progress` | configuration, errors, counters for a watchdog |

mod batch;
mod blocks;
mod config;
pub mod disk;
mod error;
mod format;
mod index;
mod mark;
mod progress;
mod queue;
mod read;
mod recover;
mod relocate;
mod replay;
mod report;
mod segment;
mod segment_pool;
mod shortage;
mod tail;
mod wal;
mod writer;

pub use batch::{CompletionCallback, HEAD_BYTES_MAX, META_BYTES_MAX, StreamId, WalBatch};
pub use config::{QUEUE_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, WalConfig};
pub use error::{WalError, WalFull};
pub use format::FORMAT;
pub use progress::Progress;
pub use read::Record;
pub use replay::Damage;
pub use report::{Bounds, PinnedRecords, RecoveredLog, StreamState};
pub use shortage::Shortage;
pub use wal::Wal;
