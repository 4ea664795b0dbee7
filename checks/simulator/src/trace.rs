//! Trace of a run, line by line: only on request, since a run is repeated exactly by its seed.

use std::collections::VecDeque;
use std::fmt::Display;

/// The last lines of a run and a hash of all of them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    kept_max: usize,
    lines: VecDeque<String>,
    hash: u64,
    count: u64,
}

impl Trace {
    /// Keeps the last `kept_max` lines; zero switches tracing off.
    pub(crate) fn new(kept_max: usize) -> Self {
        Self { kept_max, lines: VecDeque::new(), hash: 0xCBF2_9CE4_8422_2325, count: 0 }
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.kept_max > 0
    }

    /// Adds a line; `line` is not called while tracing is off.
    pub(crate) fn note<L: Display>(&mut self, truth: u64, line: impl FnOnce() -> L) {
        if !self.is_on() {
            return;
        }
        let line = format!("{truth:>7} {}", line());
        for byte in line.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
        self.count += 1;
        if self.lines.len() >= self.kept_max {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Returns a hash of every line, kept or not.
    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
