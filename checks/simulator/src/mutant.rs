//! Mutants: rules that a run can disable, one at a time, to prove that the checks can fail.

mod shell {
    archon_types::mutants! {
        /// Reports data read at the start as durable without a sync.
        UnsyncedTail = 20,
        /// Acknowledges a write before the disk has it.
        AckBeforeSync = 20,
        /// Completes a copy before its rows are synced.
        CopyUnsynced = 20,
        /// Reports a copy as deleted before its disk has removed it.
        DeletedUnsynced = 22,
        /// Ignores changes of the existing tables on a node.
        DropUnreported = 26,
        /// Changes the voters in one step, without joint consensus.
        VotersWithoutJoint = 57,
        /// Lets a coordinator take part with a copy of another one's directory, while the original runs.
        CopyTakesPart = 58,
        /// Lets a relay grant leases by itself when no coordinator answers.
        RelayAnswersAlone = 65,
        /// Does not mirror writes to a partition being split to the copy formed of it.
        NotMirrored = 38,
        /// Gives every retry a new number.
        RetryRenumbered = 24,
        /// Gives a retry a new stamp.
        RetryRestamped = 24,
        /// Restarts a write where the table says that its key is, before its partition says that it has moved.
        RenameUnasked = 43,
        /// Restarts a write that is open when its partition ends.
        RenameAfterMerge = 51,
    }
}

/// A rule of the shells around the pure code that can be disabled: duties of the nodes' and coordinators' shells.
pub use shell::Mutant as ShellMutant;

/// One disabled rule, in any room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// In the shells, which here are the simulator's own.
    Shell(ShellMutant),
    /// Around a node's replicas.
    #[cfg(feature = "mutants")]
    Host(archon_host::Mutant),
    /// In a member's session.
    #[cfg(feature = "mutants")]
    Member(archon_member::Mutant),
    /// In the replica.
    #[cfg(feature = "mutants")]
    Replica(archon_replica::Mutant),
    /// In the coordinator's core.
    #[cfg(feature = "mutants")]
    Core(archon_coordinator_core::Mutant),
    /// In the exactly-once evaluation.
    #[cfg(feature = "mutants")]
    Kv(archon_kv::Mutant),
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// Returns all mutants of all rooms.
    pub fn all() -> impl Iterator<Item = Self> {
        let shells = ShellMutant::ALL.iter().map(|mutant| Self::Shell(*mutant));
        let hosts = archon_host::Mutant::ALL.iter().map(|mutant| Self::Host(*mutant));
        let members = archon_member::Mutant::ALL.iter().map(|mutant| Self::Member(*mutant));
        let replicas = archon_replica::Mutant::ALL.iter().map(|mutant| Self::Replica(*mutant));
        let cores = archon_coordinator_core::Mutant::ALL.iter().map(|mutant| Self::Core(*mutant));
        let kvs = archon_kv::Mutant::ALL.iter().map(|mutant| Self::Kv(*mutant));
        shells.chain(hosts).chain(members).chain(replicas).chain(cores).chain(kvs)
    }

    /// Returns the number of the disabled rule; 0 if it has no number.
    pub const fn rule(self) -> u8 {
        match self {
            Self::Shell(mutant) => mutant.rule(),
            Self::Host(mutant) => mutant.rule(),
            Self::Member(mutant) => mutant.rule(),
            Self::Replica(mutant) => mutant.rule(),
            Self::Core(mutant) => mutant.rule(),
            Self::Kv(mutant) => mutant.rule(),
        }
    }

    /// Returns its name; unique within its room.
    pub fn name(self) -> String {
        match self {
            Self::Shell(mutant) => format!("{mutant:?}"),
            Self::Host(mutant) => format!("{mutant:?}"),
            Self::Member(mutant) => format!("{mutant:?}"),
            Self::Replica(mutant) => format!("{mutant:?}"),
            Self::Core(mutant) => format!("{mutant:?}"),
            Self::Kv(mutant) => format!("{mutant:?}"),
        }
    }

    /// Returns the room of the disabled rule; the shells' are the simulator's own.
    pub const fn room(self) -> &'static str {
        match self {
            Self::Shell(_) => "shell",
            Self::Host(_) => "host",
            Self::Member(_) => "member",
            Self::Replica(_) => "replica",
            Self::Core(_) => "core",
            Self::Kv(_) => "kv",
        }
    }
}

/// Returns the disabled rules of the coordinators' core.
pub(crate) fn broken_core(mutant: Option<Mutant>) -> archon_coordinator_core::DisabledRule {
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Core(broken)) = mutant {
        return archon_coordinator_core::DisabledRule::by(Some(broken));
    }
    let _ = mutant;
    archon_coordinator_core::DisabledRule::default()
}

/// Returns the disabled rules of the rooms around replicas.
pub(crate) fn broken_host(mutant: Option<Mutant>) -> archon_host::DisabledRule {
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Host(broken)) = mutant {
        return archon_host::DisabledRule::by(Some(broken));
    }
    let _ = mutant;
    archon_host::DisabledRule::default()
}

/// Returns the disabled rules of a member's session.
pub(crate) fn broken_member(mutant: Option<Mutant>) -> archon_member::DisabledRule {
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Member(broken)) = mutant {
        return archon_member::DisabledRule::by(Some(broken));
    }
    let _ = mutant;
    archon_member::DisabledRule::default()
}
