//! Compares the files of `packaging/` with the program: flags, variables, exit codes, deadlines. `tidy` compares the files with each other.

mod installed_files;
mod manifests;
mod truth;
mod units;

use archon_tidy::source;

/// Every command in the guide exists in the program.
#[test]
fn guide_names_existing_verbs_and_flags() {
    let text = source("packaging/README.md");
    let commands: Vec<&str> =
        text.split('`').chain(text.lines()).filter_map(|part| part.trim().strip_prefix("archon ")).collect();
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split(['#', '\n']).next().unwrap_or_default().split_whitespace().collect();
        truth::check_command("packaging/README.md", &words);
    }
}
