//! Scenario of a seed: size of the world, quality of its network, length of its faults.

use crate::random::Random;
use archon_kv::DedupLimits;
use archon_kv::engine::PageLimit;
use archon_types::{LeaseTiming, Settings};
use std::ops::Range;

/// Theme of a seed. Half of its faults create situations in which one kind of rule is the only protection; chance alone
/// seldom makes two faults meet within a tenth of a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Theme {
    /// None.
    Noise,
    /// A leader is cut off, or comes back, just when its lease or its incarnation ends (rules 13 to 16).
    Leases,
    /// A leader hears only a deposed coordinator (rule 13).
    Split,
    /// Clients stay with a replaced leader, which hears some of its followers (rules 10, 11, 18).
    OldLeader,
    /// A leader that should hand over cannot (rules 12, 15, 16).
    HandOvers,
    /// Directories are rolled back, wiped, or lose a placement (rules 7, 19).
    Disks,
    /// Nodes are away for so long that they are replaced.
    Away,
    /// Disks are lost before any node knows that a new partition is led (rule 19).
    Young,
    /// Nodes come back alone, from older or damaged disks, while all others are dead (rules 7, 22).
    Alone,
    /// Partitions of a table by ranges are split while participating nodes have faults (rules 34 to 42).
    Splits,
    /// They are merged as well (rules 44 to 51).
    Merges,
    /// Relays or their members have faults (rules 65 to 72).
    Relays,
    /// Live nodes are unreachable for clients, while their probers have faults (rules 73 to 76).
    Doors,
    /// Replicas that answer reads do not learn that they are behind (rule 33).
    Replicas,
}

impl Theme {
    /// Returns true if there are tables by ranges.
    pub(crate) fn is_about_ranges(self) -> bool {
        matches!(self, Self::Splits | Self::Merges)
    }
}

/// Parameters of a run, all drawn from its seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Nodes, 3 to 5.
    pub nodes: usize,
    /// Clients.
    pub clients: usize,
    /// The cluster's settings: number of partitions and copies, time-outs.
    pub settings: Settings,
    /// Length of the fault period, in milliseconds of true time.
    pub faults_ms: u64,
    /// Mean time between faults, in milliseconds.
    pub calm_ms: u64,
    /// Messages lost, in thousandths.
    pub loss_permille: u64,
    /// Messages delivered twice, in thousandths.
    pub twice_permille: u64,
    /// Slow messages, in thousandths.
    pub slow_permille: u64,
    /// Maximum delay of slow messages, in milliseconds: beyond an epoch.
    pub slow_ms: u64,
    /// A partition's limits for records of clients.
    pub dedup: DedupLimits,
    /// Bytes of log retained for an absent copy; mostly zero, so that copies are pulled.
    pub lagging_bytes_max: u64,
    /// Bytes that a node logs, all partitions together, until nothing is retained for an absent copy.
    pub lagging_distance_max: u64,
    /// Maximum bytes of log retained for one copy being pulled.
    pub pinned_bytes_max: u64,
    /// Bytes that a node logs, all partitions together, until a copy being pulled restarts.
    pub pinned_distance_max: u64,
    /// Theme.
    pub theme: Theme,
    /// True if copies hear of stray leaderships, which were never granted.
    pub strays: bool,
    /// True if an operator accepts lost writes where a partition has no possible leader for long.
    pub accepts_loss: bool,
    /// True if the coordinators are recovered from less than a majority.
    pub recovers: bool,
    /// A node is started on an older copy of its directory during the recovery, and on the right one later.
    pub sets_back: bool,
    /// Requests for keys that were split off arrive late, and the keys are merged back meanwhile.
    pub returns_keys: bool,
    /// Keys of a table by ranges, and as many counters.
    pub range_keys: u64,
    /// Rows and bytes of one log entry of a merge.
    pub entry_limit: PageLimit,
    /// True if members are replaced by other versions.
    pub upgrades: bool,
    /// True if the members of the quorum change.
    pub changes_quorum: bool,
    /// True if sessions of the leading coordinator end and begin again within its term.
    pub restarts: bool,
    /// True if engines refuse accesses for a while.
    pub refuses_reads: bool,
    /// True if nodes relay each other's heartbeats.
    pub relays: bool,
    /// True if nodes probe each other.
    pub doors: bool,
    /// True if each relay carries at most one other.
    pub carries_few: bool,
    /// True if clients write values that expire.
    pub expires: bool,
    /// True if clients read and write several keys at once.
    pub transacts: bool,
    /// True if clients read at replicas.
    pub reads_replicas: bool,
    /// True if the keys of hashed tables are no text.
    pub binary_keys: bool,
    /// True if operators drop and recreate tables.
    pub drops: bool,
    /// Number of failure zones, assigned in turn; 0 if nodes have no zone.
    pub zones: usize,
    /// Maximum placements of each node, if limited: enough for all tables with one node away.
    pub placements_max: Option<u32>,
    /// True if disks are wiped and directories rolled back: faults that may destroy acknowledged writes permanently.
    pub destroys: bool,
}

/// From here on up to [`SPLITS_END`] every seed is about splits: lower seeds run as before splits existed.
const SPLITS_FROM: u64 = 100_000_000;
const SPLITS_END: u64 = 200_000_000;
/// Seeds from there on up to here are about merges as well.
const MERGES_END: u64 = 300_000_000;
/// Of drawn seeds, one in this many is about splits, and another about merges.
const DRAWN_RANGES: u64 = 6;

/// Returns true if a seed belongs to this feature: all seeds of the range, and an eighth of the drawn ones, by a number
/// of its own.
fn is_of(seeds: Range<u64>, number: u64, seed: u64) -> bool {
    seeds.contains(&seed) || (seed >= crate::base::DRAWN_FROM && Random::new(seed ^ number).below(8) == 0)
}

/// Seeds from there on up to here are about recoveries of the coordinators.
const RECOVERIES_END: u64 = 400_000_000;

/// Returns true if the coordinators of this seed lose their majority.
fn recovers(seed: u64) -> bool {
    is_of(MERGES_END..RECOVERIES_END, 0x4EC0_74ED, seed)
}

/// Seeds from there on up to here are about upgrades.
const UPGRADES_END: u64 = 500_000_000;

/// Returns true if members of this seed are replaced by other versions.
fn upgrades(seed: u64) -> bool {
    is_of(RECOVERIES_END..UPGRADES_END, 0x0B64_ADED, seed)
}

/// Seeds from there on up to here are about changes of the quorum.
const QUORUM_END: u64 = 600_000_000;

/// Returns true if the coordinators of this seed join and leave.
fn changes_quorum(seed: u64) -> bool {
    is_of(UPGRADES_END..QUORUM_END, 0x0057_A7ED, seed)
}

/// Seeds from there on up to here are about relays.
const RELAYS_END: u64 = 700_000_000;

/// Returns true if nodes of this seed relay each other's heartbeats.
fn relays(seed: u64) -> bool {
    is_of(QUORUM_END..RELAYS_END, 0x0CA2_21ED, seed)
}

/// Returns the theme of a seed with relays: one in three keeps its own theme.
fn of_relays(seed: u64) -> Option<Theme> {
    (relays(seed) && !recovers(seed) && !upgrades(seed) && !seed.is_multiple_of(3)).then_some(Theme::Relays)
}

/// Seeds from there on up to here are about reachability.
const DOORS_END: u64 = 800_000_000;

/// Returns true if nodes of this seed probe each other.
fn doors(seed: u64) -> bool {
    is_of(RELAYS_END..DOORS_END, 0x0D00_25ED, seed)
}

/// Seeds from there on up to here are about sessions that end within a term.
const RESTARTS_END: u64 = 900_000_000;

/// Returns whether sessions of the leading coordinator end within its term.
fn restarts(seed: u64) -> bool {
    is_of(DOORS_END..RESTARTS_END, 0x05E5_51ED, seed)
}

/// Seeds from there on up to here have values that expire.
const EXPIRIES_END: u64 = 950_000_000;

/// Returns whether clients of this seed write values that expire.
fn expires(seed: u64) -> bool {
    let several = (REFUSING_END..TRANSACTIONS_END).contains(&seed) && seed.is_multiple_of(2);
    several || is_of(RESTARTS_END..EXPIRIES_END, 0x0E8B_12ED, seed)
}

/// Returns the theme of a seed with values that expire: every fourth merges partitions.
fn of_expiries(seed: u64) -> Option<Theme> {
    ((RESTARTS_END..EXPIRIES_END).contains(&seed) && seed.is_multiple_of(4)).then_some(Theme::Merges)
}

/// Returns the theme of a seed in which they do: one in three keeps its own theme.
fn of_restarts(seed: u64) -> Option<Theme> {
    (seed < RESTARTS_END && restarts(seed) && !seed.is_multiple_of(3)).then_some(Theme::Leases)
}

/// Seeds from there on up to here are about engines that refuse reads.
const REFUSING_END: u64 = 1_000_000_000;

/// Returns whether engines of this seed refuse accesses for a while.
fn refuses_reads(seed: u64) -> bool {
    is_of(EXPIRIES_END..REFUSING_END, 0x0E26_12ED, seed)
}

/// Returns the theme of a seed in which they do: keys are split off and merged, as a leader must know what its log gave
/// away (rule 35). One in three keeps its own theme.
fn of_refused_reads(seed: u64) -> Option<Theme> {
    match seed % 3 {
        _ if !(EXPIRIES_END..REFUSING_END).contains(&seed) => None,
        0 => Some(Theme::Splits),
        1 => Some(Theme::Merges),
        _ => None,
    }
}

/// Seeds from there on up to here have operations on several keys.
const TRANSACTIONS_END: u64 = 1_100_000_000;

/// Returns whether clients of this seed read and write several keys at once.
fn transacts(seed: u64) -> bool {
    is_of(REFUSING_END..TRANSACTIONS_END, 0x07A5_12ED, seed)
}

/// Seeds from there on up to here have reads at replicas.
const REPLICAS_END: u64 = 1_200_000_000;

/// Returns whether clients of this seed read at replicas.
fn reads_replicas(seed: u64) -> bool {
    is_of(TRANSACTIONS_END..REPLICAS_END, 0x0433_12ED, seed)
}

/// Returns whether a seed is in the range of reads at replicas.
fn is_about_replicas(seed: u64) -> bool {
    (TRANSACTIONS_END..REPLICAS_END).contains(&seed)
}

/// Returns the theme of a seed in which they do: one in three keeps its own theme.
fn of_replica_reads(seed: u64) -> Option<Theme> {
    (is_about_replicas(seed) && !seed.is_multiple_of(3)).then_some(Theme::Replicas)
}

/// Returns whether keys of hashed tables are no text: every other seed about replicas, and an eighth of the drawn ones.
fn has_binary_keys(seed: u64) -> bool {
    is_of(TRANSACTIONS_END..REPLICAS_END, 0x0B14_A2ED, seed) && !(is_about_replicas(seed) && seed.is_multiple_of(2))
}

/// Returns the theme of a seed with probes: one in three keeps its own theme.
fn of_doors(seed: u64) -> Option<Theme> {
    let other = recovers(seed) || upgrades(seed) || changes_quorum(seed) || seed.is_multiple_of(3);
    (doors(seed) && !other).then_some(Theme::Doors)
}

/// Returns the minimum number of nodes with probes: of more than seven, two may be unreachable with credible probers.
fn doors_min(seed: u64) -> usize {
    if doors(seed) { Random::new(seed ^ 0x0D00_25E7).pick(&[0, 0, 8, 9]).unwrap_or(0) } else { 0 }
}

/// Returns the theme of a seed about ranges.
fn of_ranges(seed: u64) -> Option<Theme> {
    let drawn = || Random::new(seed ^ 0x5B11_75ED).below(DRAWN_RANGES);
    match seed {
        SPLITS_FROM..SPLITS_END => Some(Theme::Splits),
        SPLITS_END..MERGES_END => Some(Theme::Merges),
        crate::base::DRAWN_FROM.. => match drawn() {
            0 => Some(Theme::Splits),
            1 => Some(Theme::Merges),
            _ => None,
        },
        _ => None,
    }
}

/// Maximum number of partitions that operators add.
pub(crate) const PARTITIONS_ADDED_MAX: u32 = 3;

/// The setting `relays_from` in worlds with relays.
const RELAYS_FROM: u64 = 2;

/// Keys of a table by ranges in most worlds.
const RANGE_KEYS: u64 = 8;
/// Keys where there are many small rows, so that copies and merges use full pages and entries.
const TINY_KEYS: u64 = 40;

/// Returns true if tables by ranges have many small rows.
fn has_tiny_rows(seed: u64, theme: Theme) -> bool {
    theme.is_about_ranges() && Random::new(seed ^ 0x0714_90ED).below(4) == 0
}

/// Returns the limit of one log entry: one row in most worlds, and some with many rows, by rows or by bytes.
fn entry_limit(seed: u64, tiny: bool) -> PageLimit {
    let drawn = Random::new(seed ^ 0x0E47_21ED).below(3);
    match (tiny, drawn) {
        (false, _) => PageLimit { rows_max: 1, bytes_max: usize::MAX },
        (true, 0) => PageLimit { rows_max: 3, bytes_max: usize::MAX },
        (true, 1) => PageLimit { rows_max: 3, bytes_max: 48 },
        (true, _) => PageLimit { rows_max: 100, bytes_max: 64 },
    }
}

/// Returns a limit with room for every copy while a node is away, and one more; `None` if that limits nothing.
fn placements_max(nodes: usize, partitions: u32, replication: u8) -> Option<u32> {
    let (nodes, replication) = (u32::try_from(nodes).ok()?, u32::from(replication));
    let partitions = partitions + PARTITIONS_ADDED_MAX;
    let most = (partitions * replication).div_ceil(nodes - 1) + 1;
    (replication < nodes && most < partitions).then_some(most)
}

impl Scenario {
    /// Returns the scenario of a seed.
    pub fn of(seed: u64) -> Self {
        Self::draw(seed, &mut Random::new(seed ^ 0x5EED))
    }

    fn draw(seed: u64, random: &mut Random) -> Self {
        let themes = [
            Theme::Leases,
            Theme::Split,
            Theme::OldLeader,
            Theme::OldLeader,
            Theme::HandOvers,
            Theme::Disks,
            Theme::Away,
        ];
        let theme = match random.below(9) {
            0..=1 => Theme::Noise,
            2 => random.pick(&[Theme::Young, Theme::Alone]).unwrap_or(Theme::Noise),
            _ => random.pick(&themes).unwrap_or(Theme::Noise),
        };
        let of_feature = of_ranges(seed).or(of_relays(seed)).or(of_doors(seed)).or(of_restarts(seed));
        let of_feature = of_feature.or(of_expiries(seed)).or(of_refused_reads(seed)).or(of_replica_reads(seed));
        let theme = of_feature.unwrap_or(theme);
        // Of four copies two may be dropped, so that two sides can separate (rule 18).
        let (nodes, replication) = match theme {
            Theme::OldLeader => (4 + random.index(2), random.pick(&[2, 3, 4, 4]).unwrap_or(4)),
            Theme::Replicas => (4 + random.index(2), random.pick(&[2, 3, 3, 4]).unwrap_or(3)),
            _ => (3 + random.index(3), random.pick(&[1, 2, 2, 3, 3, 3]).unwrap_or(3)),
        };
        let nodes = nodes.max(doors_min(seed));
        // Short time-outs pack many failovers into a run; the arithmetic between them is that of the defaults.
        let timing = match random.below(4) {
            0 => LeaseTiming::default(),
            // A relay waits equally long with any settings.
            _ if relays(seed) && seed.is_multiple_of(2) => LeaseTiming::default(),
            _ if doors(seed) && seed.is_multiple_of(4) => LeaseTiming::default(),
            _ => LeaseTiming { heartbeat_ms: 50, lease_ms: 250, failure_timeout_ms: 300, margin_ms: 20 },
        };
        let unit = timing.heartbeat_ms;
        let splits = theme.is_about_ranges();
        let partitions = if splits { 1 } else { u32::try_from(random.between(1, 3)).unwrap_or(1) };
        let settings = Settings {
            timing,
            nodes_min: u32::try_from(nodes).unwrap_or(3),
            partitions,
            replication,
            replication_timeout_ms: unit * if theme == Theme::OldLeader { 6 } else { random.between(2, 6) },
            replace_after_ms: unit * if theme == Theme::Away { random.between(4, 12) } else { random.between(10, 60) },
            copies_per_node_max: 2,
            relays_from: 0,
            door_every_ms: 0,
            ..Settings::default()
        };
        let rough = random.below(3);
        let tiny = has_tiny_rows(seed, theme);
        let mut plan = Self {
            seed,
            nodes,
            clients: 2 + random.index(3),
            settings,
            faults_ms: match theme {
                Theme::HandOvers => timing.failure_timeout_ms * random.between(20, 30),
                // A split that is abandoned for its length takes 5 s.
                Theme::Splits | Theme::Merges => 5_000 + unit * random.between(60, 140),
                _ => unit * random.between(60, 140),
            },
            theme,
            // A generator of its own, so that all other seeds stay the same.
            strays: !is_about_replicas(seed) && Random::new(seed ^ 0x057A_A7ED).below(8) == 0,
            accepts_loss: !splits && !is_about_replicas(seed) && Random::new(seed ^ 0xACCE_97ED).below(6) == 0,
            recovers: false,
            sets_back: false,
            returns_keys: theme == Theme::Merges && Random::new(seed ^ 0x4E70_12ED).below(3) == 0,
            range_keys: if tiny { TINY_KEYS } else { RANGE_KEYS },
            entry_limit: entry_limit(seed, tiny),
            upgrades: false,
            changes_quorum: false,
            restarts: restarts(seed),
            refuses_reads: refuses_reads(seed),
            relays: false,
            doors: false,
            carries_few: false,
            expires: expires(seed),
            transacts: transacts(seed),
            reads_replicas: false,
            binary_keys: has_binary_keys(seed),
            drops: Random::new(seed ^ 0x0D40_99ED).below(6) == 0,
            calm_ms: unit * random.pick(&[2, 5, 12]).unwrap_or(5),
            loss_permille: random.pick(&[0, 5, 30]).unwrap_or(5),
            twice_permille: random.pick(&[0, 10, 50]).unwrap_or(10),
            slow_permille: random.pick(&[5, 30, 100]).unwrap_or(30),
            slow_ms: if rough == 0 { unit * 40 } else { unit * 4 },
            // Without the feature `mutants` the struct has no further fields.
            #[allow(clippy::needless_update)]
            dedup: DedupLimits {
                outcomes_max: 64,
                clients_max: random.pick(&[2, 3, 100]).unwrap_or(3),
                age_ms_max: unit * random.pick(&[10, 40, 1_000]).unwrap_or(40),
                read_rows_max: 1,
                ..DedupLimits::default()
            },
            // From the seed itself: the draws stay the same.
            lagging_bytes_max: if seed % 8 == 3 { 600 } else { 0 },
            lagging_distance_max: if seed % 16 == 11 { 2_000 } else { u64::MAX },
            pinned_bytes_max: if seed % 4 == 1 { 300 } else { u64::MAX },
            pinned_distance_max: if seed % 16 == 9 { 2_000 } else { u64::MAX },
            zones: random.pick(&[0, 0, 2, 3]).unwrap_or(0),
            placements_max: (!splits && random.below(4) == 0)
                .then(|| placements_max(nodes, partitions, replication))
                .flatten(),
            destroys: matches!(theme, Theme::Disks | Theme::Young | Theme::Alone)
                || (matches!(theme, Theme::Noise | Theme::Splits | Theme::Merges) && random.below(2) == 0),
        };
        // People must accept the losses of a recovery; that it loses nothing else is visible only where nothing else is
        // lost.
        plan.recovers = recovers(seed) && !splits && !plan.destroys;
        plan.sets_back = plan.recovers && Random::new(seed ^ 0x05E7_BACC).below(3) == 0;
        plan.accepts_loss &= !plan.recovers;
        plan.drops &= !plan.recovers;
        // A version without the first protocol could not return to an earlier state.
        plan.upgrades = upgrades(seed) && !plan.recovers;
        // Both replace coordinators.
        plan.changes_quorum = changes_quorum(seed) && !plan.recovers && !plan.upgrades;
        plan.doors = doors(seed) && !plan.recovers && !plan.upgrades && !plan.changes_quorum;
        // Probe reports travel by relays, and directly.
        plan.relays = relays(seed) && !plan.recovers && !plan.upgrades || plan.doors && seed.is_multiple_of(2);
        plan.carries_few = plan.relays && seed % 8 == 5;
        // Reads are judged where leaders are granted, histories go on, and rows stay in their partition.
        let granted = !plan.strays && !plan.accepts_loss && !plan.recovers;
        plan.reads_replicas = reads_replicas(seed) && granted && !splits && !plan.expires;
        plan.settings.relays_from = if plan.relays { RELAYS_FROM } else { 0 };
        if plan.doors {
            let every_ms = (unit * 2).max(100);
            plan.settings.door_every_ms = every_ms;
            plan.settings.door_silent_ms = every_ms * 3;
            plan.settings.door_trust_ms = every_ms * 10;
        }
        plan
    }

    /// Returns the time-out that everything else is measured by.
    pub(crate) const fn unit_ms(&self) -> u64 {
        self.settings.timing.heartbeat_ms
    }
}
