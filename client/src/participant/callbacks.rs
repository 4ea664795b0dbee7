//! What a service does with its partitions.

use super::grant::Grant;
use archon_member::Why;
use archon_types::{Epoch, PartitionId};

/// Why a service could not acquire a partition.
pub type AcquireError = Box<dyn std::error::Error + Send + Sync>;

/// What a service does when it is given partitions and when it loses them.
///
/// Of one partition one of these runs at a time. Of each [`Callbacks::acquire`] there is one ending: it failed, a
/// [`Callbacks::release`] came to its end, or [`Callbacks::lost`]. What is lost while `acquire` or `release` runs is broken off
/// first: its future is dropped where it waits.
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
    fn lost(&self, partition: PartitionId, epoch: Epoch);
}
