//! Compares the figures of the published design, and those of relayed heartbeats, with the simulation, within the
//! statistical error of the runs.

use archon_zombies::carried::{away, cut_off, death};
use archon_zombies::pings::{Halves, Limbo, LimboCase, Pace, computed_share, halves, limbo, recurrence};

const SEED: u64 = 4;
const RUNS: u32 = 2_000;
const IN_STEP: Pace = Pace::InStep;

const fn out_of_step(given_up_after: f64) -> Pace {
    Pace::OutOfStep { given_up_after }
}

/// Returns the allowed deviation of a mean from this figure: five standard errors, which one seed in a million exceeds,
/// and half of the figure's last digit. Rare events spread like counts, whatever the variance of a few runs.
fn tolerance(found: &Halves, round: usize, figure: f64, digit: f64) -> f64 {
    let runs = f64::from(found.runs);
    let variance = found.variance[round].max(figure).max(1.0 / runs);
    5.0 * (variance / runs).sqrt() + digit / 2.0
}

/// Compares with figures, each with its last digit.
#[track_caller]
fn assert_left(servers: u32, pace: Pace, runs: u32, figures: &[(f64, f64)]) {
    let found = halves(servers, pace, runs, SEED);
    for (round, (figure, digit)) in figures.iter().enumerate() {
        let (left, tolerance) = (found.left[round], tolerance(&found, round, *figure, *digit));
        assert!(
            (left - figure).abs() <= tolerance,
            "{servers} servers, {pace:?}, round {}: {left}, not {figure} ± {tolerance}",
            round + 1
        );
    }
}

#[test]
fn zombies_of_halved_thousand_servers_match_the_design() {
    let in_step = [(250.0, 1.0), (62.3, 0.1), (3.9, 0.1), (0.016_3, 1e-4), (0.0, 0.0)];
    assert_left(1_000, IN_STEP, RUNS, &in_step);
    assert_left(1_000, out_of_step(0.0), RUNS, &[(175.0, 1.0), (17.3, 0.1), (0.16, 0.01), (0.0, 0.0)]);
    let half = [(358.0, 1.0), (106.0, 1.0), (11.6, 0.1), (0.23, 0.01), (4e-4, 1e-4)];
    assert_left(1_000, out_of_step(0.5), RUNS, &half);
    let one = [(500.0, 1.0), (216.0, 1.0), (59.0, 1.0), (7.1, 0.1), (0.26, 0.01)];
    assert_left(1_000, out_of_step(1.0), RUNS, &one);
}

#[test]
fn hundredfold_servers_need_hardly_more_rounds() {
    let in_step = [(24_997.0, 1.0), (6_250.0, 1.0), (392.0, 1.0), (1.6, 0.1), (0.0, 0.0)];
    assert_left(100_000, IN_STEP, 20, &in_step);
    assert_left(100_000, out_of_step(0.0), 20, &[(17_550.0, 10.0), (1_733.0, 1.0), (16.0, 1.0), (0.0, 0.0)]);
}

/// Returns the exact mean number of zombies after each round in step: of z zombies each stays one with the probability
/// that it pings another of them.
fn exactly_in_step(servers: usize) -> Vec<f64> {
    let mut chances = vec![0.0; servers / 2 + 1];
    chances[servers / 2] = 1.0;
    (0..5)
        .map(|_| {
            let mut next = vec![0.0; chances.len()];
            for (zombies, chance) in chances.iter().enumerate() {
                let stays = zombies.saturating_sub(1) as f64 / (servers - 1) as f64;
                let mut of_stayers = chance * (1.0 - stays).powi(zombies as i32);
                for (stayers, next) in next.iter_mut().enumerate().take(zombies + 1) {
                    *next += of_stayers;
                    of_stayers *= (zombies - stayers) as f64 / (stayers + 1) as f64 * stays / (1.0 - stays);
                }
            }
            chances = next;
            chances.iter().enumerate().map(|(zombies, chance)| zombies as f64 * chance).sum()
        })
        .collect()
}

#[test]
fn design_figure_0_16_contradicts_its_own_recurrence_0_0153() {
    let reckoned = recurrence(1_000);
    assert!((reckoned[3] - 0.0153).abs() < 1e-4, "{}", reckoned[3]);
    let exactly = exactly_in_step(1_000);
    assert!((exactly[3] - 0.0163).abs() < 1e-3, "{exactly:?}");
    let found = halves(1_000, IN_STEP, RUNS, SEED);
    assert!((found.left[3] - 0.16).abs() > tolerance(&found, 3, 0.16, 0.01), "0.16 could be right after all");
}

#[test]
fn simulated_means_match_the_exact_means() {
    for servers in [20, 1_000] {
        let found = halves(servers, IN_STEP, RUNS, SEED);
        for (round, exactly) in exactly_in_step(servers as usize).iter().enumerate() {
            let (left, tolerance) = (found.left[round], tolerance(&found, round, *exactly, 0.0));
            assert!(
                (left - exactly).abs() <= tolerance,
                "{servers} servers, round {}: {left}, not {exactly}",
                round + 1
            );
        }
    }
}

fn a_death(answer: f64, delay: f64, loss: f64) -> Limbo {
    limbo(LimboCase { servers: 1_000, answer, delay, loss, intervals: 200 }, 100, SEED)
}

fn mean(shares: &[f64]) -> f64 {
    shares.iter().sum::<f64>() / shares.len() as f64
}

#[test]
fn limbo_ends_only_below_its_threshold() {
    for delay in [0.0, 0.5, 1.0, 2.0] {
        for answer in [0.5, 1.0, 1.5, 5.0, 20.0] {
            let found = a_death(answer, delay, 0.0);
            let (infects, lasted) = (answer - delay, found.runs - found.died_out);
            let case = format!("answer {answer}, delay {delay}: {lasted} of {} runs go on", found.runs);
            if infects < 1.0 {
                assert_eq!(lasted, 0, "{case}");
            } else if infects > 1.0 {
                // Few are infected at first, so it may end by chance: two runs in ten where each infects one and a
                // half, else hardly any.
                assert!(lasted >= if infects < 2.0 { 60 } else { 97 }, "{case}");
                let computed = computed_share(answer, delay);
                assert!((found.lasting - computed).abs() < 0.01, "{case}, with {}, not {computed}", found.lasting);
            } else if delay > 0.0 {
                // Where each infects one, waiting servers infect none and cannot be infected: it ends, if late.
                assert!(lasted <= 10 && mean(&found.shares[100..]) < 0.005, "{case}");
            }
        }
    }
}

#[test]
fn limbo_at_its_threshold_grows_only_with_loss() {
    // Two servers that find the dead one before all know of it lead to four in limbo at a time: the spread between runs
    // is wide, so there are many.
    let calm = limbo(LimboCase { servers: 1_000, answer: 1.0, delay: 0.0, loss: 0.0, intervals: 30 }, 2_000, SEED);
    let (soon, later) = (mean(&calm.shares[5..10]), mean(&calm.shares[20..]));
    assert!((soon - 0.004).abs() < 0.001 && (later - 0.004).abs() < 0.002, "{soon}, {later}");
    // Each server brought into limbo by a lost ping leads to two.
    let lossy = a_death(1.0, 0.0, 0.001);
    let computed = 1.0 - (-2.0 * 0.001 * 200.0_f64).exp();
    assert!((lossy.shares[199] - computed).abs() < 0.1, "{}, not {computed}", lossy.shares[199]);
    let sooner = mean(&a_death(0.5, 0.0, 0.001).shares[100..]);
    assert!(sooner < 0.005, "{sooner}");
}

#[test]
fn relayed_leases_of_cut_off_half_end_before_any_failure() {
    let found = cut_off(1_000, 4, SEED).expect("a cluster of 1,000");
    let (first, last) = found.ended;
    assert!(last <= 1_000, "a lease ended {last} ms after the cut");
    assert!(first > 750, "a lease ended {first} ms after the cut: it was not renewed before it");
    assert_eq!((found.failed_too_soon, found.others_hurt), (0, 0));
    // All fail in the end, by the time-out: 1,250 ms after the last answer, and a control turn.
    assert!(found.failed.0 > first && found.failed.1 <= 1_350, "{:?}", found.failed);
    let serving = |at: u64| found.serving.iter().find(|(ms, _)| *ms == at).map(|(_, share)| *share);
    assert!(serving(750).is_some_and(|share| share > 0.999) && serving(1_000) == Some(0.0));
}

#[test]
fn slow_coordinator_costs_relayed_leases_only_beyond_the_lease() {
    for (answer_ms, without_lease) in [(10, 0.0), (200, 0.0), (700, 0.0), (1_000, 1.0)] {
        let found = death(1_000, answer_ms, SEED).expect("a cluster of 1,000");
        assert_eq!(found.without_lease, without_lease, "{answer_ms} ms: {found:?}");
        assert_eq!((found.living_failed, found.failed_too_soon), (0, 0), "{answer_ms} ms: {found:?}");
        let at = found.failed_at.expect("the dead one is failed");
        assert!((1_000..1_450).contains(&(at - answer_ms.saturating_sub(100))), "{answer_ms} ms: failed after {at}");
    }
}

#[test]
fn relayed_leases_last_as_granted_without_coordinator() {
    let lapsed = |ms| away(1_000, ms, SEED).expect("a cluster of 1,000");
    assert_eq!(lapsed(700).lapsed, 0.0);
    assert_eq!(lapsed(1_000).lapsed, 1.0);
    assert_eq!(lapsed(1_000).failed_too_soon, 0);
}
