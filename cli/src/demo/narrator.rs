//! The voice of the story: numbered steps, a sentence each, what was seen.

use crate::output::{Output, talk};
use archon_client::Role;
use archon_local_cluster::{Cluster, YOU};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Commands to try on the running cluster, after its address and the program's name have been said.
const TO_TRY: &[&str] = &[
    "archon status",
    "archon partition list",
    "archon kv get city/00042 | head -c 60",
    "archon kv put hello world && archon kv get hello",
    "archon partition locate hello",
    "archon kv incr visits",
    "archon node describe athens",
    "archon bench mixed --duration 5s",
    "archon table create jobs --partitions 12 --lease",
    "archon partition describe 0 --table jobs    a lease that waits for a service of yours: docs/LEASES.md",
    "archon events",
];
/// What the node is called that a reader adds.
const ANOTHER: &str = "delphi";
/// And with one more node.
///
/// Its directory is a new one each time, so that it does not meet the next demonstration's cluster, and none of the
/// demonstration's, which goes away at the end while that node may still run.
const TO_TRY_WITH_ANOTHER: &[&str] = &[
    "archon node --name delphi --listen 127.0.0.1:0 --data-dir \"$(mktemp -d)\" --log error & DELPHI=$!",
    "archon rebalance plan",
    "archon rebalance apply --wait",
    "archon node drain athens --wait",
    "kill $DELPHI                    yours to end: the demonstration ends only what it started",
];

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
    pub(super) fn tails(&self, tails: &[(PathBuf, String)]) {
        for (path, tail) in tails {
            talk(&format!("--- the end of {}", path.display()));
            talk(tail);
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
        let program = std::env::current_exe().map_or_else(|_| "archon".to_owned(), |path| quoted(&path));
        let endpoints = cluster.endpoints().join(",");
        self.say("");
        self.say(self.output.bold("The cluster stays up until you press Ctrl-C. In another terminal, try:"));
        self.say("");
        self.show(&format!("export ARCHON_COORDINATORS={endpoints}\nalias archon={program}"));
        if let Ok(Some(credentials)) = cluster.credentials(Role::Admin, YOU) {
            self.show(&format!("export ARCHON_TLS_DIR={}", quoted(&credentials)));
        }
        TO_TRY.iter().for_each(|line| self.show(line));
        let own = cluster.node_credentials(ANOTHER).ok().flatten();
        for line in TO_TRY_WITH_ANOTHER {
            // A node shows a certificate of its own.
            let shown = own.as_ref().filter(|_| line.starts_with("archon node --name"));
            match shown {
                Some(own) => self.show(&line.replacen("node", &format!("node --tls-dir {}", quoted(own)), 1)),
                None => self.show(line),
            }
        }
        self.say("");
        self.say(format!("     look: archon top, or {}", cluster.consoles().join("  ")));
        self.say(format!("     logs: {}", cluster.directory().display()));
    }
}

/// A path as a shell reads it back, wherever it stands.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+');
    if text.chars().all(plain) { text } else { format!("\"'{}'\"", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_path_is_quoted() {
        assert_eq!(quoted(Path::new("/usr/bin/archon")), "/usr/bin/archon");
        assert_eq!(quoted(Path::new("/my dir/archon")), "\"'/my dir/archon'\"");
    }
}
