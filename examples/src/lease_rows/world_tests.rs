use super::*;
use proptest::prelude::*;

const PARTITIONS: u32 = 1_024;
const NEEDED: usize = 64;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// Returns a world with this many servers, each with room for as many partitions as if there were 64.
fn world(seed: u64, servers: usize) -> World {
    let most = max_count(PARTITIONS as usize, NEEDED);
    World::new(seed, Timing::MINUTES, Conditions::FAIR, PARTITIONS, servers, most)
}

fn all_owned(world: &World) -> bool {
    world.owned().iter().sum::<usize>() == PARTITIONS as usize
}

/// Returns true if the rate is within a hundredth.
fn is_about(count: u64, seconds: u64, expected: f64) -> bool {
    (count as f64 / seconds as f64 - expected).abs() < expected / 100.0
}

#[test]
fn cost_of_1024_leases_on_64_servers_is_as_computed() {
    let mut world = world(1, NEEDED);
    // All begin within the first two minutes; partitions taken first are renewed for the first time after two more.
    assert!(world.run_until(10 * MINUTE, all_owned).is_some(), "{:?}", world.owned());
    assert_eq!(world.owned(), [16; NEEDED], "each takes as much as it may");
    world.run_for(4 * MINUTE);
    world.take_counts();
    world.run_for(2 * HOUR);
    let counts = world.take_counts();
    assert!(is_about(counts.renewals, 7_200, 1024.0 / 120.0), "{counts:?}");
    assert!(is_about(counts.rows_read, 7_200, 64.0 * 1024.0 / 120.0), "{counts:?}");
    assert_eq!((counts.other_writes, counts.conflicts), (0, 0), "nothing changes hands");
    assert_eq!(world.two_owners(), [] as [&str; 0]);
}

#[test]
fn partitions_are_owned_again_after_six_of_70_servers_die() {
    let mut world = world(2, 70);
    world.run_for(HOUR);
    world.take_counts();
    world.run_for(HOUR);
    let counts = world.take_counts();
    assert!(is_about(counts.renewals, 3_600, 1024.0 / 120.0), "{counts:?}");
    assert!(is_about(counts.rows_read, 3_600, 70.0 * 1024.0 / 120.0), "{counts:?}");
    let owned = world.owned();
    let busiest: Vec<usize> = (0..owned.len()).filter(|server| owned[*server] == 16).take(6).collect();
    busiest.iter().for_each(|server| world.fault_after(0, *server, Fault::Kill));
    world.run_for(1);
    assert!(!all_owned(&world));
    let took = world.run_until(30 * MINUTE, all_owned).expect("as many are left as are needed");
    // A renewal just before the end, a reading just after: four minutes and two more until the row is seen to be
    // unchanged.
    assert!((3 * MINUTE..=6 * MINUTE + 10_000).contains(&took), "{took} ms");
    // One more death, and there is not enough room.
    let alive = world.owned().iter().position(|owned| *owned > 0).expect("somebody owns something");
    world.fault_after(0, alive, Fault::Kill);
    world.run_for(1);
    assert_eq!(world.run_until(HOUR, all_owned), None);
    assert_eq!(world.owned().iter().sum::<usize>(), 63 * 16);
    assert_eq!(world.two_owners(), [] as [&str; 0]);
}

#[test]
fn partitions_of_stopped_server_are_taken_at_next_read() {
    let mut world = world(3, 70);
    world.run_for(HOUR);
    let owner = world.owned().iter().position(|owned| *owned == 16).expect("one that is full");
    world.fault_after(0, owner, Fault::Stop);
    world.run_for(1_000);
    assert!(!all_owned(&world));
    assert!(world.run_until(2 * MINUTE + 10_000, all_owned).is_some(), "a broken lease is not waited for");
}

#[test]
fn deleted_row_has_no_owner_and_changed_row_is_lost() {
    let mut world = World::new(4, Timing::MINUTES, Conditions::FAIR, 4, 2, 4);
    world.run_for(10 * MINUTE);
    world.rows().operate(0, |_| None);
    let all_but_one = |world: &World| world.owned().iter().sum::<usize>() == 3;
    assert!(world.run_until(3 * MINUTE, all_but_one).is_some());
    world.run_for(HOUR);
    assert!(all_but_one(&world), "{:?}", world.owned());
    // Prohibited to both: its holder loses it at its next renewal, and no server takes it.
    world.rows().operate(1, |row| Some(Row { prohibited: ["s0", "s1"].map(str::to_owned).into(), ..row }));
    world.run_for(HOUR);
    assert_eq!(world.owned().iter().sum::<usize>(), 2);
    // To one of them: the other takes it, and the column stays.
    world.rows().operate(1, |row| Some(Row { prohibited: ["s0".to_owned()].into(), ..row }));
    world.run_for(HOUR);
    let row = world.rows().get(1).expect("it is there");
    assert!(row.server == "s1" && row.prohibited.contains("s0"), "{row:?}");
    assert_eq!(world.owned().iter().sum::<usize>(), 3);
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::Kill),
        5 => Just(Fault::Start),
        4 => (1..8 * MINUTE).prop_map(Fault::Pause),
        2 => (0..6_u32).prop_map(Fault::Bump),
        3 => Just(Fault::Drop),
        1 => Just(Fault::Stop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// With clocks that are off by a hundredth, twenty-four times as much as measured in data centres, and with
    /// messages that are lost, or so late that everything has happened meanwhile.
    #[test]
    fn two_servers_never_believe_in_one_partition(
        seed: u64,
        faults in prop::collection::vec((0..2 * HOUR, 0..5_usize, fault()), 0..30),
    ) {
        let conditions = Conditions { delay_max: 5_000, lost_one_in: 12, late_one_in: 12, drift_ppm: 10_000, ..Conditions::FAIR };
        let patient = Conditions { timeout: 5 * MINUTE, ..conditions };
        for conditions in [conditions, patient] {
            let mut world = World::new(seed, Timing::MINUTES, conditions, 6, 5, 3);
            for (after, server, fault) in &faults {
                world.fault_after(*after, *server, *fault);
            }
            world.run_for(2 * HOUR);
            prop_assert!(world.two_owners().is_empty(), "{:?}", world.two_owners());
        }
    }
}

/// Validates that the search above finds violations.
#[test]
fn unsafe_times_lead_to_two_owners() {
    let hasty = Timing { take_over: 130_000, ..Timing::MINUTES };
    assert!(hasty.check().is_err());
    let conditions = Conditions { delay_max: 5_000, lost_one_in: 4, ..Conditions::FAIR };
    let found = (0..20).any(|seed| {
        let mut world = World::new(seed, hasty, conditions, 6, 5, 3);
        world.run_for(4 * HOUR);
        !world.two_owners().is_empty()
    });
    assert!(found);
}
