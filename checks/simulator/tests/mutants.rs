//! Disables every rule of the protocol, one at a time, in the whole simulated world. The table in `docs/design/simulation.md`
//! lists the rules that some seed shows, the property, and the test of its own room that fails with it; this test
//! verifies the table, and that every mutant and every rule is in it. Alone in its program, since it silences the
//! panics of the process.
#![cfg(feature = "mutants")]

use archon_simulator::{Mutant, run};
use archon_tidy::named::{is_run, tests_in};
use archon_tidy::source;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds tried before a mutant counts as missed. The table names only mutants that need fewer.
const SEEDS_MAX: u64 = 900;
/// Rules of the protocol.
const RULES: u8 = 87;
/// Themes with seeds of their own: the first rule of each, and its first seed.
const THEMES: [(u8, u64); 12] = [
    (87, 1_000_000_000),
    (83, 900_000_000),
    (77, 600_000_000),
    (73, 700_000_000),
    (65, 600_000_000),
    (63, 400_000_000),
    (60, 300_000_000),
    (57, 500_000_000),
    (52, 600_000_000),
    (44, 200_000_000),
    (34, 100_000_000),
    (33, 1_100_000_000),
];

/// A line of the table.
#[derive(Debug)]
struct Row {
    rule: u8,
    mutant: Option<(String, String)>,
    /// The property whose violation some seed of the simulator shows.
    property: Option<String>,
    /// Seeds run until that one, if it is known.
    seeds: Option<u64>,
    shown_by: String,
}

/// Returns the lines of the table, `| rule | room | mutant | property | seeds | shown by |`.
fn table() -> Vec<Row> {
    let text = source("docs/design/simulation.md");
    let lines = text.lines().skip_while(|line| !line.starts_with("| Rule | Room |")).skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [rule, room, mutant, property, seeds, shown_by] = cells[..] else { panic!("a line of the table: {line}") };
        let word = |cell: &str| cell.trim_matches('`').to_owned();
        Row {
            rule: rule.parse().unwrap_or_else(|_| panic!("a rule's number: {line}")),
            mutant: (mutant != "—").then(|| (word(room), word(mutant))),
            property: (property != "—").then(|| word(property)),
            seeds: seeds.parse().ok(),
            shown_by: shown_by.to_owned(),
        }
    };
    lines.take_while(|line| line.starts_with('|')).map(row).collect()
}

fn key(mutant: Mutant) -> (String, String) {
    (mutant.room().to_owned(), mutant.name())
}

/// Returns the first seed about a mutant's rule.
fn first_seed(mutant: Mutant) -> u64 {
    THEMES.iter().find(|(rule, _)| mutant.rule() >= *rule).map_or(0, |(_, first)| *first)
}

/// Returns the first detection of a mutant, in a seed that passes without it: the number of seeds run before it, from
/// the first ones about its rule, and the property.
fn caught(mutant: Mutant, seeds: u64) -> Option<(u64, &'static str)> {
    caught_from(first_seed(mutant), mutant, seeds)
}

fn caught_from(first: u64, mutant: Mutant, seeds: u64) -> Option<(u64, &'static str)> {
    (0..seeds).find_map(|number| {
        let seed = first + number;
        let violation = run(seed, Some(mutant), 0).violation?;
        run(seed, None, 0).violation.is_none().then_some((number, violation.letter()))
    })
}

/// Runs `work` for all mutants, on all cores.
fn on_all_cores<T: Send>(mutants: &[Mutant], work: impl Fn(Mutant) -> T + Sync) -> Vec<(Mutant, T)> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(*mutant);
                    done.lock().expect("no worker panics").push((*mutant, result));
                }
            });
        }
    });
    done.into_inner().expect("no worker panics")
}

#[test]
fn table_lists_every_mutant_and_every_rule() {
    let rows = table();
    let mut listed: BTreeMap<(String, String), u8> = BTreeMap::new();
    for row in &rows {
        if let Some(mutant) = &row.mutant {
            assert_eq!(listed.insert(mutant.clone(), row.rule), None, "{mutant:?} stands there twice");
        }
    }
    for mutant in Mutant::all() {
        assert_eq!(listed.remove(&key(mutant)), Some(mutant.rule()), "{:?} and its rule", key(mutant));
    }
    assert!(listed.is_empty(), "there are no such mutants: {listed:?}");
    let rules: BTreeSet<u8> = rows.iter().map(|row| row.rule).collect();
    assert_eq!(rules, (0..=RULES).collect(), "every rule has a line; 0 is what is no rule of its own");
}

/// Returns the `shown_by!` lists of a file: pairs of a mutant and the test that runs with and without it. `caught!`
/// passes its own on.
fn shown_in(text: &str) -> BTreeSet<(String, String)> {
    let (mut shown, mut inside) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim) {
        match line.strip_suffix(',').and_then(|line| line.split_once(" => ")) {
            Some((mutant, test)) if inside => drop(shown.insert((mutant.to_owned(), test.to_owned()))),
            _ => inside = matches!(line, "archon_types::shown_by! {" | "caught! {"),
        }
    }
    shown
}

/// A list for which `shown_by!` generates tests: each must fail with its mutant and pass without.
#[test]
fn named_test_fails_with_its_mutant() {
    for row in table() {
        let Some((room, mutant)) = row.mutant.as_ref().filter(|(room, _)| room != "shell") else { continue };
        let tests = tests_in(&row.shown_by);
        assert!(!tests.is_empty(), "nothing shows {mutant} of {room}");
        for (file, name) in tests {
            let shown = shown_in(&source(&file));
            assert!(!shown.is_empty(), "{file} has no list of mutants and the tests that show them");
            assert!(
                shown.contains(&(mutant.clone(), name.clone())),
                "{name} in {file} is not run with {mutant} of {room}"
            );
        }
    }
}

/// For rules without a mutant: the tests exist, and are not ignored.
#[test]
fn rules_without_mutants_have_active_tests() {
    for row in table().iter().filter(|row| row.mutant.is_none()) {
        let tests = tests_in(&row.shown_by);
        assert!(!tests.is_empty(), "nothing shows {row:?}");
        tests.iter().for_each(|(file, name)| assert!(is_run(&source(file), name), "{file} runs no {name}"));
    }
    let text = source("docs/design/simulation.md");
    let lines = text.lines().skip_while(|line| !line.starts_with("| Mutant | Test |")).skip(2);
    let mut left: BTreeSet<String> =
        Mutant::all().filter(|mutant| mutant.room() == "shell").map(Mutant::name).collect();
    for line in lines.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [mutant, tests, shows, why] = cells[..] else { panic!("a line of the table: {line}") };
        assert!(left.remove(mutant.trim_matches('`')), "no such mutant, or twice: {line}");
        assert!(!shows.is_empty() && !why.is_empty(), "{line}");
        let tests = tests_in(tests);
        assert!(!tests.is_empty(), "{line}");
        tests.iter().for_each(|(file, name)| assert!(is_run(&source(file), name), "{file} runs no {name}"));
    }
    assert!(left.is_empty(), "nothing is said of the shells' {left:?}");
}

#[test]
fn unlisted_tests_are_not_taken_for_mutant_tests() {
    let list = "archon_types::shown_by! {\n    NoCut => what_differs_is_cut,\n}\nmatch a {\n    Some => none,\n}\n";
    assert_eq!(shown_in(list), BTreeSet::from([("NoCut".to_owned(), "what_differs_is_cut".to_owned())]));
    assert!(is_run("#[test]\nfn a() {}", "a") && is_run("#[tokio::test]\nasync fn a() {}", "a"));
    assert!(!is_run("fn a() {}", "a"), "it is nobody's");
    assert!(!is_run("#[test]\n#[ignore = \"slow\"]\nfn a() {}", "a"));
    assert!(!is_run("#[test]\nfn ab() {}", "a"));
}

#[test]
fn mutants_with_a_seed_are_caught() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let seen: BTreeMap<(String, String), Option<u64>> = table()
        .into_iter()
        .filter(|row| row.property.is_some())
        .filter_map(|row| Some((row.mutant?, row.seeds)))
        .collect();
    let mutants: Vec<Mutant> = Mutant::all().filter(|mutant| seen.contains_key(&key(*mutant))).collect();
    let results = on_all_cores(&mutants, |mutant| {
        // The listed seed first. If it no longer shows the mutant, another one below the limit may.
        let listed = seen[&key(mutant)].filter(|seeds| (1..=SEEDS_MAX).contains(seeds));
        let at_listed = listed.and_then(|seeds| caught_from(first_seed(mutant) + seeds - 1, mutant, 1));
        at_listed.or_else(|| caught(mutant, SEEDS_MAX))
    });
    std::panic::set_hook(loud);
    let missed: Vec<_> = results.iter().filter(|(_, found)| found.is_none()).map(|(mutant, _)| key(*mutant)).collect();
    assert!(missed.is_empty(), "no seed below {SEEDS_MAX} shows {missed:?}");
}

#[test]
#[ignore = "measures the table: how many seeds each mutant takes, of ARCHON_SEEDS at most"]
fn survey() {
    std::panic::set_hook(Box::new(|_| {}));
    let seeds = std::env::var("ARCHON_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let first: Option<u64> = std::env::var("ARCHON_FROM").ok().and_then(|text| text.parse().ok());
    let only = std::env::var("ARCHON_MUTANT").ok();
    let wanted = |mutant: &Mutant| only.as_ref().is_none_or(|only| only.split(',').any(|name| mutant.name() == name));
    let mutants: Vec<Mutant> = Mutant::all().filter(wanted).collect();
    on_all_cores(&mutants, |mutant| {
        let (room, name) = key(mutant);
        match first.map_or_else(|| caught(mutant, seeds), |first| caught_from(first, mutant, seeds)) {
            Some((before, property)) => {
                println!("| {} | {room} | `{name}` | {property} | {} |", mutant.rule(), before + 1);
            }
            None => println!("| {} | {room} | `{name}` | — | {seeds} |", mutant.rule()),
        }
    });
}
