//! The same seed gives the same run, line by line.

use archon_simulator::run;

#[test]
fn same_seed_gives_the_same_trace() {
    for seed in [1, 4] {
        let (one, other) = (run(seed, None, 10), run(seed, None, 10));
        assert_eq!((one.trace_hash, &one.trace), (other.trace_hash, &other.trace), "seed {seed}");
        assert_eq!(one.coverage, other.coverage, "seed {seed}");
    }
    assert_ne!(run(1, None, 10).trace_hash, run(4, None, 10).trace_hash);
}

#[test]
fn tracing_does_not_change_the_run() {
    assert_eq!(run(7, None, 0).coverage, run(7, None, 10).coverage);
}
