//! Every rule of the coordinator taken away, one at a time: the fake world or a check of its own must miss it.

mod world;

use archon_coordinator_core::Mutant;
use archon_types::{NodeGoal, Settings};
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::{Fault, World};

fn fault(world: &mut World) -> Fault {
    let node = world.below(5) as usize;
    let span = 50 + world.below(3_950);
    match world.below(33) {
        0..=3 => Fault::Crash { node, down_ms: span },
        4 => Fault::Wipe { node, down_ms: span },
        5..=7 => Fault::Pause { node, for_ms: span },
        8..=10 => Fault::CutOff { node, for_ms: span },
        11 | 12 => Fault::Stop { node, down_ms: span },
        13..=15 => Fault::NewCoordinator,
        16..=19 => Fault::Plan,
        20 => Fault::CancelPlan,
        21 | 22 => {
            let goal = [NodeGoal::Serve, NodeGoal::Cordon, NodeGoal::Drain][world.below(3) as usize];
            Fault::Goal { node, goal }
        }
        _ => Fault::Calm { for_ms: span },
    }
}

/// One run; panics when something does not hold.
fn run(seed: u64, mutant: Option<Mutant>) {
    let spread = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let nodes = 2 + (seed % 3) as usize;
    let replication = (1 + (seed / 3) % 3).min(nodes as u64) as u8;
    let settings = Settings { partitions: 4, nodes_min: nodes as u32, replication, ..Settings::default() };
    let mut world = World::new(spread, nodes, settings);
    world.state.mutant = mutant;
    world.run(3_000);
    for _ in 0..25 {
        let fault = fault(&mut world);
        world.strike(&fault);
    }
    world.heal();
}

/// The first seed that catches the mutant, and how.
fn caught(mutant: Option<Mutant>, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| {
        let why = catch_unwind(AssertUnwindSafe(|| run(seed, mutant))).err()?;
        let text = why.downcast_ref::<String>().cloned();
        let text = text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Some((seed, text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()))
    })
}

#[test]
#[ignore = "prints which mutants the fake world catches"]
fn survey() {
    std::panic::set_hook(Box::new(|_| {}));
    println!("   {:?}", caught(None, 300));
    for mutant in Mutant::ALL {
        println!("{:2} {mutant:?} {:.110?}", mutant.rule(), caught(Some(*mutant), 300));
    }
}
