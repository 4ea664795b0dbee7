//! Runs a target: corpus first, then generated and mutated inputs, keeping those that produced a new answer.

use crate::corpus;
use crate::mutate::mutate;
use crate::target::{Target, Verdict};
use archon_testkit::Random;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Maximum number of inputs kept for further mutation.
const KEPT_MAX: usize = 2_000;
/// Time limit of an input, above which it is a finding: a few kilobytes must not keep a decoder busy.
const SLOW: Duration = Duration::from_secs(20);

/// Length of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunLength {
    /// Number of inputs.
    Inputs(u64),
    /// Duration.
    Time(Duration),
}

/// The outcome of a run.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Inputs tried.
    pub inputs: u64,
    /// Accepted inputs.
    pub accepted: u64,
    /// Number of different answers.
    pub answers: usize,
}

/// An input that broke a decoder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The target.
    pub target: String,
    /// The input.
    pub input: Vec<u8>,
    /// Description.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} on {} bytes: ", self.target, self.what, self.input.len())?;
        for byte in self.input.iter().take(512) {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Runs one input.
///
/// # Errors
/// A [`Finding`] if the decoder panicked or exceeded the time limit.
pub fn try_one(target: &Target, input: &[u8]) -> Result<Verdict, Box<Finding>> {
    let finding = |what: String| Box::new(Finding { target: target.name.clone(), input: input.to_vec(), what });
    let begun = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = begun.elapsed();
    match verdict {
        Err(panic) => Err(finding(format!("panicked ({})", words_of(panic.as_ref())))),
        Ok(_) if took > SLOW => Err(finding(format!("took {took:?}"))),
        Ok(Verdict::Refused(text)) if text.trim().is_empty() => Err(finding("refused without a word".into())),
        Ok(verdict) => Ok(verdict),
    }
}

/// Runs a target from `seed`: first its corpus, then for the length of `until`.
///
/// # Errors
/// The first [`Finding`].
pub fn run(target: &Target, seed: u64, until: RunLength) -> Result<Summary, Box<Finding>> {
    let mut random = Random::new(seed);
    let mut summary = Summary::default();
    let mut seen = BTreeSet::new();
    let mut kept = (target.seeds)();
    let committed = corpus::read(target).unwrap_or_default();
    kept.extend(committed.into_iter().map(|(_, input)| input));
    for input in kept.clone() {
        note(target, &input, &mut summary, &mut seen)?;
    }
    let begun = Instant::now();
    let goes_on = |summary: &Summary| match until {
        RunLength::Inputs(count) => summary.inputs < count,
        RunLength::Time(time) => begun.elapsed() < time,
    };
    while goes_on(&summary) {
        let mut input = match target.generate {
            Some(generate) if kept.is_empty() || random.once_in(2) => {
                generate(target.name.rsplit('/').next().unwrap_or_default(), &mut random)
            }
            _ if kept.is_empty() => Vec::new(),
            _ => random.pick(&kept).clone(),
        };
        if target.generate.is_none() || random.once_in(2) {
            let other = if kept.is_empty() { Vec::new() } else { random.pick(&kept).clone() };
            mutate(&mut input, &other, &mut random);
        }
        if let Some(fix_checksums) = target.fix_checksums
            && !random.once_in(8)
        {
            fix_checksums(&mut input);
        }
        if note(target, &input, &mut summary, &mut seen)? && kept.len() < KEPT_MAX {
            kept.push(input);
        }
    }
    summary.answers = seen.len();
    Ok(summary)
}

fn note(
    target: &Target,
    input: &[u8],
    summary: &mut Summary,
    seen: &mut BTreeSet<String>,
) -> Result<bool, Box<Finding>> {
    let verdict = try_one(target, input)?;
    summary.inputs += 1;
    summary.accepted += u64::from(matches!(verdict, Verdict::Accepted(_)));
    Ok(seen.insert(verdict.signature()))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weak(input: &[u8]) -> Verdict {
        assert!(!input.starts_with(&[7, 7]), "two sevens");
        Verdict::Accepted(format!("{:?}", input.first().map(|byte| (b'a' + byte % 16) as char)))
    }

    #[test]
    fn panicking_decoder_is_found_with_a_reproducing_input() {
        let target = Target::new("test/weak", weak, || vec![vec![1, 2, 3]]);
        let finding = run(&target, 1, RunLength::Inputs(200_000)).expect_err("it panics on two sevens");
        assert!(finding.what.contains("two sevens"), "{finding}");
        assert!(try_one(&target, &finding.input).is_err());
    }

    #[test]
    fn same_seed_gives_the_same_run() {
        let target = Target::new("test/sound", |input| Verdict::Accepted(input.len().to_string()), || vec![vec![1]]);
        assert_eq!(run(&target, 5, RunLength::Inputs(500)), run(&target, 5, RunLength::Inputs(500)));
    }
}
