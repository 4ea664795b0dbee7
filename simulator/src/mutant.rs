//! Rules that a run may break, one at a time, to prove that the checks can fail.

mod shell {
    archon_types::mutants! {
        /// What is read at the start is reported as durable without a sync.
        UnsyncedTail = 20,
        /// A write is acknowledged before the disk has it.
        AckBeforeSync = 20,
        /// A copy is complete before its rows are synced.
        CopyUnsynced = 20,
        /// A copy is said to be deleted before its disk has forgotten it.
        DeletedUnsynced = 22,
        /// A node does not take in which tables there are.
        DropUnreported = 26,
        /// The voters change in one step, without joint consensus.
        VotersWithoutJoint = 57,
        /// A coordinator with a copy of another one's directory takes part, whoever runs with the original.
        CopyTakesPart = 58,
        /// A relay that no coordinator answers grants leases by itself.
        RelayAnswersAlone = 65,
        /// What is written to a partition that is being split is not written to the copy that is formed of it.
        NotMirrored = 38,
        /// Every retry carries a new number.
        RetryRenumbered = 24,
        /// A retry is stamped anew.
        RetryRestamped = 24,
        /// A write begins anew where the table says that its key is, before its partition says that it has moved.
        RenameUnasked = 43,
        /// A write that is open when its partition ends begins anew.
        RenameAfterMerge = 51,
    }
}

/// A rule of the shells around the pure code that can be broken: what the nodes' and coordinators' shells must see to.
pub use shell::Mutant as ShellMutant;

/// One broken rule, wherever it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// In the shells, which here are the simulator's own.
    Shell(ShellMutant),
    /// In what surrounds a node's replicas.
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
    /// In what makes each operation take effect once.
    #[cfg(feature = "mutants")]
    Kv(archon_kv::Mutant),
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// All there are, of all rooms.
    pub fn all() -> impl Iterator<Item = Self> {
        let shells = ShellMutant::ALL.iter().map(|mutant| Self::Shell(*mutant));
        let hosts = archon_host::Mutant::ALL.iter().map(|mutant| Self::Host(*mutant));
        let members = archon_member::Mutant::ALL.iter().map(|mutant| Self::Member(*mutant));
        let replicas = archon_replica::Mutant::ALL.iter().map(|mutant| Self::Replica(*mutant));
        let cores = archon_coordinator_core::Mutant::ALL.iter().map(|mutant| Self::Core(*mutant));
        let kvs = archon_kv::Mutant::ALL.iter().map(|mutant| Self::Kv(*mutant));
        shells.chain(hosts).chain(members).chain(replicas).chain(cores).chain(kvs)
    }

    /// The number of the rule it takes away; 0 if it is no rule of its own.
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

    /// Its name; unique within its room.
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

    /// The room whose rule it takes away; the shells' are the simulator's own.
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

/// What of the coordinators' room a mutant breaks.
pub(crate) fn broken_core(mutant: Option<Mutant>) -> archon_coordinator_core::Broken {
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Core(broken)) = mutant {
        return archon_coordinator_core::Broken::by(Some(broken));
    }
    let _ = mutant;
    archon_coordinator_core::Broken::default()
}

/// What of the rooms around replicas a mutant breaks.
pub(crate) fn broken_host(mutant: Option<Mutant>) -> archon_host::Broken {
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Host(broken)) = mutant {
        return archon_host::Broken::by(Some(broken));
    }
    let _ = mutant;
    archon_host::Broken::default()
}

/// What of a member's session a mutant breaks.
pub(crate) fn broken_member(mutant: Option<Mutant>) -> archon_member::Broken {
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Member(broken)) = mutant {
        return archon_member::Broken::by(Some(broken));
    }
    let _ = mutant;
    archon_member::Broken::default()
}
