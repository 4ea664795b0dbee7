//! Arguments and output of the program.

use archon_zombies::pings::{Pace, halves};
use archon_zombies::{Arguments, Figures, charts, text};
use clap::Parser;
use clap::error::ErrorKind;
use std::fs;

fn arguments(words: &[&str]) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from([&["zombies"], words].concat())
}

#[test]
fn invalid_numbers_are_refused_with_the_valid_range() {
    for (words, kind, says) in [
        (["--servers", "19"], ErrorKind::ValueValidation, "19 is not in 20..=100000"),
        (["--servers", "many"], ErrorKind::ValueValidation, "invalid digit"),
        (["--runs", "0"], ErrorKind::ValueValidation, "0 is not in 1..=1000000"),
        (["--seed", "-1"], ErrorKind::UnknownArgument, "unexpected argument '-1'"),
        (["--rounds", "1"], ErrorKind::UnknownArgument, "a similar argument exists: '--runs'"),
    ] {
        let error = arguments(&words).expect_err("it is refused");
        assert_eq!((error.kind(), error.exit_code()), (kind, 2), "{words:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn report_depends_only_on_the_seed() {
    let report = |seed: &str| {
        let arguments = arguments(&["--servers", "60", "--runs", "20", "--seed", seed]).expect("good arguments");
        text(&Figures::new(arguments).expect("a cluster of 60"))
    };
    let printed = report("7");
    assert_eq!(printed, report("7"));
    let drawn = |seed| halves(60, Pace::InStep, 20, seed);
    assert_ne!(drawn(7), drawn(8));
    for line in [
        "Drawn from seed 7; ",
        "Half of 60 servers are cut off. ",
        "Half of 100,000 servers are cut off. ",
        "One of 60 servers dies, ",
        "Cut off in halves, every carried lease ends within 1,000 ms, certainly; ",
        "What the coordinator bears. ",
    ] {
        assert!(printed.contains(line), "{line} is missing in\n{printed}");
    }
    assert!(printed.lines().all(|line| line.chars().count() <= 140), "{printed}");
}

#[test]
fn charts_are_written_or_the_error_names_the_file() {
    let figures = Figures::new(arguments(&["--servers", "20", "--runs", "1"]).expect("good arguments"));
    let figures = figures.expect("a cluster of 20");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let files = charts(&figures, &directory.path().join("new")).expect("charts");
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    assert_eq!(names, ["halves.svg", "limbo.svg", "cut_off.svg"]);
    for file in &files {
        let svg = fs::read_to_string(file).expect("a chart");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
    }
    let error = charts(&figures, &files[0]).expect_err("a file is no directory").to_string();
    assert!(error.contains("halves.svg: ") && error.contains("--svg"), "{error}");
}
