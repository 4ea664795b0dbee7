//! Generates `docs/reference/cli.md` from the parser, and checks the file.

use crate::args::Cli;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write as _;
use std::path::Path;

/// Set to regenerate the file instead of comparing it.
const UPDATE: &str = "ARCHON_UPDATE_DOCS";

const HEAD: &str = "# Commands

Every command of `archon` with its options, generated from the parser. The option `--help` of a command prints its part.
[Commands by task](../operate/commands.md) shows them in use, [JSON output](json.md) describes their documents, and
[limits](limits.md) the sizes that they accept.
";

/// Joins the lines of a help text, and adds the full stop that the parser removes.
fn joined(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.ends_with(|last: char| last.is_alphanumeric() || ")`".contains(last)) {
        line.push('.');
    }
    line
}

/// Returns one list item per option: names, help, values, default and environment variable.
fn option(argument: &Arg) -> String {
    let values = || -> String {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().map(|name| format!(" <{name}>")).collect()
    };
    let takes_values = argument.get_action().takes_values();
    let long = argument.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = argument.get_short().map(|short| format!("-{short}")).into_iter().chain(long).collect();
    let mut shown = names.join(", ");
    if takes_values {
        shown += &values();
    }
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut item = format!("- `{}`: {}", shown.trim(), joined(&help));
    let possible: Vec<String> = if takes_values && !argument.is_hide_possible_values_set() {
        let shown = |value: &clap::builder::PossibleValue| (!value.is_hide_set()).then(|| value.get_name().to_owned());
        argument.get_possible_values().iter().filter_map(shown).collect()
    } else {
        Vec::new()
    };
    if !possible.is_empty() {
        write!(item, " Values: `{}`.", possible.join("`, `")).expect("a string");
    }
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_values && !defaults.is_empty() && !argument.is_hide_default_value_set() {
        write!(item, " Default: `{}`.", defaults.join(",")).expect("a string");
    }
    if let Some(variable) = argument.get_env() {
        write!(item, " Environment: `{}`.", variable.to_string_lossy()).expect("a string");
    }
    item + "\n"
}

/// Appends a section for a command, and one for each command below it.
fn section(command: &Command, path: &str, page: &mut String) {
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().bin_name(path).render_usage().to_string();
    let paragraphs: Vec<String> = about.split("\n\n").map(joined).collect();
    let usage = usage.trim_start_matches("Usage: ");
    write!(page, "\n## {path}\n\n{}\n\n```text\n{usage}\n```\n", paragraphs.join("\n\n")).expect("a string");
    let is_root = command.get_name() == "archon";
    let listed = |argument: &&Arg| {
        let is_own = is_root || !argument.is_global_set();
        is_own && !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
    };
    let options: String = command.get_arguments().filter(listed).map(option).collect();
    if !options.is_empty() {
        write!(page, "\n{options}").expect("a string");
    }
    if let Some(examples) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        write!(page, "\n```text\n{examples}\n```\n").expect("a string");
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        section(below, &format!("{path} {}", below.get_name()), page);
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    section(&Cli::command(), "archon", &mut page);
    page
}

#[test]
fn page_of_commands_matches_the_parser() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/cli.md");
    let wanted = page();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = wanted.lines().zip(found.lines()).find(|(wanted, found)| wanted != found);
    assert!(
        wanted == found,
        "docs/reference/cli.md does not match the parser ({differs:?}); regenerate it: {UPDATE}=1 cargo test -p archonkv-cli reference"
    );
}
