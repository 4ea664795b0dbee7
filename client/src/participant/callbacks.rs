//! What a service does with its partitions.

use super::grant::Grant;
use archon_member::Why;
use archon_types::{Epoch, PartitionId};

/// Why a service could not acquire a partition.
pub type AcquireError = Box<dyn std::error::Error + Send + Sync>;

/// What a service does when it is given partitions and when it loses them.
///
/// One of these runs at a time for a partition. Each [`Callbacks::acquire`] has one ending: it failed, a
/// [`Callbacks::release`] came to its end, or [`Callbacks::lost`]. What is lost while `acquire` or `release` runs is broken off
/// first: its future is dropped where it waits.
///
/// | | may take | if it takes longer | may touch |
/// |---|---|---|---|
/// | `acquire` | as long as it needs; nobody serves the partition meanwhile, and `archon partition describe` says `TakingOver` | no bound ends it, only `lost`; a hand-over, a drop and a stop wait for it | what is read and written carries [`Grant::epoch`]; [`Grant::check`] fails until it has succeeded |
/// | `release`, handed over | 8 failure time-outs of the participant: 10 s by the cluster's defaults | the partition is withdrawn, so `release` is broken off and `lost` follows; the next owner waits for the lease | everything, while [`Grant::check`] passes |
/// | `release`, dropped | as long as it needs | it stays owned | the same |
/// | `release`, stopped | as long as [`super::Participant::stop`] was given | everything is lost, and others wait for the lease | the same |
/// | `lost` | microseconds: all other callbacks wait for it | they wait | memory only |
///
/// After an error of `acquire` the partition goes to another participant at once; if there is none, back to this one after ten
/// seconds.
///
/// | what happens | what is called | who owns the partition then |
/// |---|---|---|
/// | the process is paused, or its machine sleeps, beyond the lease | `lost`, once it wakes; [`Grant::check`] fails from the end of the lease on | others, after the failure time-out |
/// | it is paused for less than the lease | nothing | it does |
/// | it is killed | nothing | others, after the failure time-out |
/// | no majority of the coordinators answers | `lost`, when the lease is over | nobody, until a majority is back; then whoever had it, in the same epoch, or others |
/// | another process takes its name | `lost`; [`super::Participant::failed`] says so | that process, or others |
///
/// `acquire` and `release` run on the runtime on which the participant was started, so they must not block it: what blocks there
/// delays `lost`. That [`Grant::check`] fails is not delayed by anything.
pub trait Callbacks: Send + Sync + 'static {
    /// Makes ready to own a partition: loads what is needed, and tells storage the epoch. Requests are taken for it once this
    /// has succeeded. An error drops the partition, and it is given to another participant, if there is one.
    fn acquire(&self, grant: Grant) -> impl Future<Output = Result<(), AcquireError>> + Send;

    /// Brings to an end what is done with a partition, which is still owned: new requests are not taken for it any more
    /// ([`super::Participant::have_partition`]), `grant` can be used until this is over, or the lease. Then it is given away.
    fn release(&self, grant: Grant, why: Why) -> impl Future<Output = ()> + Send;

    /// It is over already: another participant may own the partition. Nothing that belongs to it is to be touched; what is kept of
    /// it in memory is to be thrown away.
    ///
    /// It always ends the last `acquire` of the partition. The same epoch may be acquired once more after it ([`Grant::epoch`]), so
    /// epochs do not tell the two apart; grants do. What runs in the background keeps the grant that it began with: that one's
    /// [`Grant::check`] never passes again.
    fn lost(&self, partition: PartitionId, epoch: Epoch);
}
