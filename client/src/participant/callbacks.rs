//! Callbacks of a service that owns partitions.

use super::grant::Grant;
use archon_member::ReleaseCause;
use archon_types::{Epoch, PartitionId};

/// Reason why a service could not acquire a partition.
pub type AcquireError = Box<dyn std::error::Error + Send + Sync>;

/// Callbacks of a service for its partitions.
///
/// They run one at a time per partition. Each [`Callbacks::acquire`] has one ending: it fails, a
/// [`Callbacks::release`] finishes, or [`Callbacks::lost`]. If a partition is lost while `acquire` or `release` runs,
/// that call is cancelled first: its future is dropped at an await point.
///
/// | | time limit | after the time limit | may touch |
/// |---|---|---|---|
/// | `acquire` | none; the partition has no owner meanwhile, and `archon partition describe` shows `TakingOver` | only `lost` ends it; a hand-over, a drop and a stop wait for it | reads and writes carry [`Grant::epoch`]; [`Grant::check`] fails until it has succeeded |
/// | `release`, handed over | 8 failure time-outs of the participant: 10 s by the cluster's defaults | the partition is withdrawn, so `release` is cancelled and `lost` follows; the next owner waits for the lease | everything, while [`Grant::check`] passes |
/// | `release`, dropped | none | it stays owned | the same |
/// | `release`, stopped | the limit of [`super::Participant::stop`] | everything is lost, and others wait for the lease | the same |
/// | `lost` | microseconds: all other callbacks wait for it | they wait | memory only |
///
/// After an error of `acquire` the partition goes to another participant at once; if there is none, back to this one
/// after ten seconds.
///
/// | event | callback | owner afterwards |
/// |---|---|---|
/// | the process is paused, or its machine sleeps, beyond the lease | `lost`, once it wakes; [`Grant::check`] fails from the end of the lease on | others, after the failure time-out |
/// | it is paused for less than the lease | none | unchanged |
/// | it is killed | none | others, after the failure time-out |
/// | no majority of the coordinators answers | `lost`, at the end of the lease | none until a majority is back; then the previous owner, in the same epoch, or others |
/// | another process takes its name | `lost`; [`super::Participant::failed`] returns | that process, or others |
///
/// `acquire` and `release` run on the runtime on which the participant was started, so they must not block it:
/// blocking delays `lost`. It does not delay the failure of [`Grant::check`].
pub trait Callbacks: Send + Sync + 'static {
    /// Prepares to own a partition: loads data, and passes the epoch to storage. The partition accepts requests once
    /// this has succeeded. After an error it is given to another participant, if there is one.
    fn acquire(&self, grant: Grant) -> impl Future<Output = Result<(), AcquireError>> + Send;

    /// Finishes the work for a partition, which is still owned. It accepts no new requests
    /// ([`super::Participant::have_partition`]); `grant` is usable until this returns or the lease ends. Then the
    /// partition goes to another owner.
    fn release(&self, grant: Grant, why: ReleaseCause) -> impl Future<Output = ()> + Send;

    /// Handles a lost partition: another participant may own it. The service must not touch anything of the
    /// partition, and must discard its state in memory.
    ///
    /// It always ends the last `acquire` of the partition. The same epoch may be acquired again later
    /// ([`Grant::epoch`]), so epochs do not distinguish acquisitions; grants do. Background work keeps the grant it
    /// started with: its [`Grant::check`] never passes again.
    fn lost(&self, partition: PartitionId, epoch: Epoch);
}
