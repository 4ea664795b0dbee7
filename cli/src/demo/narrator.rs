//! Output of the story: numbered steps, a sentence each, and the results.

use crate::output::{Output, talk};
use archon_client::Role;
use archon_local_cluster::{Cluster, YOU};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Commands to try on the running cluster, printed after its address and the program's name.
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
    "archon partition describe 0 --table jobs    a lease that waits for a service of yours: docs/concepts/leases.md",
    "archon events",
];
/// Name of the node that the user adds.
const ANOTHER: &str = "delphi";
/// Commands to try with one more node.
///
/// Its directory is new each time, so that the node does not meet the next demonstration's cluster. It is outside the
/// demonstration's directory, which is deleted at the end while that node may still run.
const TO_TRY_WITH_ANOTHER: &[&str] = &[
    "archon node --name delphi --listen 127.0.0.1:0 --data-dir \"$(mktemp -d)\" --log error & DELPHI=$!",
    "archon rebalance plan",
    "archon rebalance apply --wait",
    "archon node drain athens --wait",
    "kill $DELPHI                    stop it yourself: the tour stops only its own processes",
];

/// Prints the story to standard output, or to standard error when standard output is for JSON.
pub(super) struct Narrator {
    output: Output,
    step: Cell<u32>,
}

impl Narrator {
    /// Creates the narrator for this process's streams.
    pub(super) fn new(output: Output) -> Self {
        Self { output, step: Cell::new(0) }
    }

    /// Prints one line. A closed output does not stop the story, which still checks its steps.
    pub(super) fn say(&self, text: impl AsRef<str>) {
        if self.output.is_json() {
            talk(text.as_ref());
        } else {
            let _ = self.output.line(text);
        }
    }

    /// Prints indented lines.
    pub(super) fn show(&self, text: &str) {
        for line in text.lines() {
            self.say(format!("     {line}").trim_end());
        }
    }

    /// Prints the beginning of a step: its title and its subject.
    pub(super) fn step(&self, title: &str, about: &str) {
        self.step.set(self.step.get() + 1);
        self.say("");
        self.say(format!("{:>2}.  {}", self.step.get(), self.output.bold(title)));
        self.show(&self.output.dim(about));
    }

    /// Prints a successful check.
    pub(super) fn checked(&self, text: impl AsRef<str>) {
        self.say(format!("  {}  {}", self.output.good("ok"), text.as_ref()));
    }

    /// Prints the ends of the processes' logs, after a failure.
    pub(super) fn tails(&self, tails: &[(PathBuf, String)]) {
        for (path, tail) in tails {
            talk(&format!("--- the end of {}", path.display()));
            talk(tail);
        }
    }

    /// Prints the location of the logs, if they are kept.
    pub(super) fn kept(&self, cluster: &Cluster) {
        if cluster.keeps_directory() {
            talk(&format!("data and logs are kept in {}", cluster.directory().display()));
        }
    }

    /// Prints commands to try on the running cluster.
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
            // A node presents its own certificate.
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

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+');
    if text.chars().all(plain) { text } else { format!("\"'{}'\"", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_with_special_characters_is_quoted() {
        assert_eq!(quoted(Path::new("/usr/bin/archon")), "/usr/bin/archon");
        assert_eq!(quoted(Path::new("/my dir/archon")), "\"'/my dir/archon'\"");
    }
}
