//! The voice of the story: numbered steps, a sentence each, what was seen.

use super::cluster::Cluster;
use crate::output::{Output, talk};
use std::cell::Cell;
use std::path::PathBuf;

/// Tells the story on standard output, or on standard error when standard output is for JSON.
pub(super) struct Narrator {
    output: Output,
    step: Cell<u32>,
}

impl Narrator {
    /// For this process's streams.
    pub(super) fn new(output: Output) -> Self {
        Self { output, step: Cell::new(0) }
    }

    /// One line. A reader who has gone away does not stop the story, whose steps are still checked.
    pub(super) fn say(&self, text: impl AsRef<str>) {
        if self.output.is_json() {
            talk(text.as_ref());
        } else {
            let _ = self.output.line(text);
        }
    }

    /// Lines, indented.
    pub(super) fn show(&self, text: &str) {
        for line in text.lines() {
            self.say(format!("     {line}").trim_end());
        }
    }

    /// The beginning of a step: its title and what it is about.
    pub(super) fn step(&self, title: &str, about: &str) {
        self.step.set(self.step.get() + 1);
        self.say("");
        self.say(format!("{:>2}.  {}", self.step.get(), self.output.bold(title)));
        self.show(&self.output.dim(about));
    }

    /// Something that was checked and is as it should be.
    pub(super) fn checked(&self, text: impl AsRef<str>) {
        self.say(format!("  {}  {}", self.output.good("ok"), text.as_ref()));
    }

    /// The ends of the processes' logs, after something went wrong.
    pub(super) fn tails(&self, tails: &[(PathBuf, Vec<String>)]) {
        for (path, lines) in tails {
            talk(&format!("--- the end of {}", path.display()));
            lines.iter().for_each(|line| talk(line));
        }
    }

    /// Where the logs are, if they stay.
    pub(super) fn kept(&self, cluster: &Cluster) {
        if cluster.keeps_directory() {
            talk(&format!("data and logs are kept in {}", cluster.directory().display()));
        }
    }

    /// What to try on the running cluster.
    pub(super) fn goodbye(&self, cluster: &Cluster) {
        let program = program();
        let endpoints = cluster.endpoints().join(",");
        self.say("");
        self.say(self.output.bold("The cluster stays up until you press Ctrl-C. In another terminal, try:"));
        self.say("");
        for line in [
            format!("export ARCHON_COORDINATORS={endpoints}"),
            format!("{program} status"),
            format!("{program} partition list"),
            format!("{program} kv get city/00042"),
            format!("{program} kv put greeting hello && {program} kv get greeting"),
            format!("{program} partition locate greeting"),
            format!("{program} kv bench --seconds 5"),
            format!("{program} node --name delphi --listen 127.0.0.1:0 --data-dir /tmp/archon-delphi &"),
            format!("{program} rebalance plan && {program} rebalance apply --wait"),
            format!("{program} events"),
        ] {
            self.say(format!("     {line}"));
        }
        self.say("");
        self.say(format!("     logs: {}", cluster.directory().display()));
    }
}

/// How the reader can call this program: by its path, relative where that is shorter.
fn program() -> String {
    let Ok(path) = std::env::current_exe() else { return "archon".to_owned() };
    let here = std::env::current_dir().ok();
    let relative = here.as_deref().and_then(|here| path.strip_prefix(here).ok());
    match relative {
        Some(relative) if relative.components().count() > 1 => relative.display().to_string(),
        Some(relative) => format!("./{}", relative.display()),
        None => path.display().to_string(),
    }
}
