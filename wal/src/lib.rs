//! One write-ahead log per process, shared by many streams.
//!
//! A *stream* is a sequence of records with consecutive numbers, and a few small *metas* beside
//! it. Any number of streams share one log, so that one write makes the records of all of them
//! durable: the writer thread takes whatever is queued, writes it with one durable write, and
//! calls back. There is no timer; while a write is under way the next group gathers.
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
//! # What it promises
//!
//! * A batch is whole or absent after any crash, and everything whose callback said `Ok` is there.
//!   What was in flight may be there too.
//! * Whatever [`Wal::open`] reports is durable, also after a failed sync ended the process before.
//! * A failed write or sync of the log ends the process; it is never retried.
//! * A torn end is cut; a note of what was durable tells it from damage of the last write, unless
//!   the power failed before the system brought the note to the disk. Anything else that fails its
//!   checksum is [`Damage`]: the log opens, and the streams that are not proven whole are closed for
//!   writing until they are dropped.
//! * Records that their owner may not forget do not keep the whole log: beyond
//!   [`kept_bytes_max`](WalConfig::kept_bytes_max) the oldest are written again at its end.
//! * Memory and queue are bounded; a full disk makes the log read-only until space returns, with a
//!   reserve for [`urgent`](WalBatch::urgent) batches.
//!
//! # Parts
//!
//! | file | what it is |
//! |---|---|
//! | `wal` | the handle that callers hold |
//! | `batch`, `queue`, `writer` | the way in: what is appended, what waits, the one thread that writes |
//! | `read` | the way out |
//! | `index`, `tail` | what is durable; the pure rules of a stream's numbers |
//! | `format`, `mark` | the bytes on disk; the note of what was durable |
//! | `recover`, `replay`, `report` | recovery: reading and writing, its pure part, what it found |
//! | `relocate` | choice of old records that are written again at the end |
//! | `blocks` | the memory that is written from: whole blocks, the last one again and again |
//! | `segment`, `spare`, `shortage`, [`disk`] | the files; those made ready; why there are none; the file system behind a trait |
//! | `config`, `error`, `progress` | what can be tuned, what goes wrong, what a watchdog sees |

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

pub use batch::{Done, StreamId, WalBatch};
pub use config::{QUEUE_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, WalConfig};
pub use error::{WalError, WalFull};
pub use format::FORMAT;
pub use progress::Progress;
pub use read::Record;
pub use replay::Damage;
pub use report::{Bounds, Pinned, Recovered, StreamState};
pub use shortage::Shortage;
pub use wal::Wal;
