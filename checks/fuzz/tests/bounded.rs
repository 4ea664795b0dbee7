//! Every decoder in every test run: the corpus, and some thousands of damaged inputs.
#![allow(missing_docs)]

use archon_fuzz::driver::{self, RunLength};
use archon_fuzz::target::{Target, Verdict};
use archon_fuzz::{corpus, protobuf, targets};
use std::collections::BTreeSet;

/// Returns the number of inputs: slower targets, with a file or a log's threads, get fewer.
fn inputs(target: &Target) -> u64 {
    match target.name.as_str() {
        "log/segment" => 600,
        name if name.ends_with("identity") || name.ends_with("file") => 800,
        "command-line/plan" | "coordinator/snapshot" => 800,
        _ => 4_000,
    }
}

#[test]
fn no_input_breaks_a_decoder() {
    let (mut answers, mut broken, mut dull) = (0, Vec::new(), Vec::new());
    for target in targets::all() {
        match driver::run(&target, 1, RunLength::Inputs(inputs(&target))) {
            Ok(summary) => {
                println!("{}: {summary:?}", target.name);
                if summary.accepted == 0 || summary.answers < 2 {
                    dull.push(target.name);
                }
                answers += summary.answers;
            }
            Err(finding) => broken.push(*finding),
        }
    }
    assert!(broken.is_empty(), "{}", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    assert!(dull.is_empty(), "nothing was ever accepted, or all answers were alike, so little was tried: {dull:?}");
    assert!(answers > 150, "only {answers} different answers in all: the inputs have become dull");
}

#[test]
fn committed_corpus_is_still_accepted() {
    for target in targets::all() {
        let committed = corpus::read(&target).expect("the corpus is readable");
        let real = committed.iter().filter(|(name, _)| name.starts_with("real-"));
        for (name, input) in real {
            let verdict = driver::try_one(&target, input).unwrap_or_else(|finding| panic!("{name}: {finding}"));
            assert!(matches!(verdict, Verdict::Accepted(_)), "{}/{name}: {verdict:?}", target.name);
        }
        assert!(
            target.generate.is_some() || !committed.is_empty(),
            "{} has no corpus; run `cargo run -p archon-fuzz -- corpus` and commit what it writes",
            target.name
        );
    }
}

#[test]
fn every_message_is_fuzzed_or_listed_as_checked_in_place() {
    let converted: BTreeSet<String> =
        targets::all().iter().filter_map(|target| target.name.strip_prefix("wire/").map(str::to_owned)).collect();
    let mut missing = BTreeSet::new();
    for method in protobuf::methods() {
        for message in [method.request, method.response] {
            if !converted.contains(&message) && !targets::CHECKED_IN_PLACE.contains(&message.as_str()) {
                missing.insert(message);
            }
        }
    }
    assert!(missing.is_empty(), "no target decodes {missing:?}: add a conversion, or name them as checked in place");
}
