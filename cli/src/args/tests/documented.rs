//! Compares pages and packaging with the options: commands, variables, keys and defaults that they name.

use super::fault;
use crate::args::Cli;
use crate::serve::settings::MemberKind;
use clap::{Arg, Command, CommandFactory};
use std::collections::BTreeSet;
use std::path::Path;

/// Pages and files for operators. Decisions and measurements describe earlier versions; the reference of commands is generated.
const PLACES: [&str; 6] =
    ["README.md", "docs/concepts", "docs/operate", "docs/reference", "docs/tutorial", "packaging"];
/// Variables of other programs: examples, builds, tests.
const OTHERS: [&str; 5] = ["ARCHON_AGENT", "ARCHON_CONSOLE", "ARCHON_FROM", "ARCHON_COMMIT", "ARCHON_TEST_LOG"];
/// Begin of the variables that `archon lock` sets for its command.
const OF_LOCKS: &str = "ARCHON_LOCK_";

/// Returns the texts of a file, or of all files below a folder, with their paths.
fn texts(place: &Path) -> Vec<(String, String)> {
    if place.is_dir() {
        let entries = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
        return entries.flat_map(|entry| texts(&entry)).collect();
    }
    let is_generated = place.ends_with("reference/cli.md");
    let text = std::fs::read_to_string(place).ok().filter(|_| !is_generated);
    text.map(|text| (place.display().to_string(), text)).into_iter().collect()
}

fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages: Vec<_> = PLACES.iter().flat_map(|place| texts(&root.join(place))).collect();
    assert!(pages.len() > 40, "only {} pages are found", pages.len());
    pages
}

/// Calls a function with each option of a command and of the commands below it.
fn visit(command: &Command, each: &mut impl FnMut(&Command, &Arg)) {
    command.get_arguments().for_each(|option| each(command, option));
    command.get_subcommands().for_each(|below| visit(below, each));
}

/// Returns the commands of `archon` in a page: in code spans, and on lines of code blocks.
fn commands(page: &str) -> impl Iterator<Item = &str> {
    let begins = |part: &'static str| move |text: &&str| text.starts_with(part);
    let spans = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(begins("archon "));
    let blocks = page.split("\n```").skip(1).step_by(2).flat_map(str::lines).filter(begins("archon "));
    // Words of a shell: comments, pipes, redirections. Commands with quotes or alternatives need a shell, or a reader.
    let ends = [" #", " |", " &", " >", " 2>", ";", "\\"];
    let commands = spans.chain(blocks).filter_map(move |command| {
        let end = ends.iter().filter_map(|end| command.find(end)).min().unwrap_or(command.len());
        command[..end].trim_end().strip_prefix("archon ")
    });
    commands.filter(|command| !command.contains(['\'', '"', '[', ',']) && !command.starts_with("help"))
}

#[test]
fn every_command_of_a_page_parses() {
    let pages = pages();
    let all: Vec<_> =
        pages.iter().flat_map(|(path, page)| commands(page).map(move |command| (path, command))).collect();
    assert!(all.len() > 80, "only {} commands are found", all.len());
    let wrong: Vec<String> = all
        .into_iter()
        .filter_map(|(path, command)| Some(format!("{path}: `archon {command}`: {}", fault(command)?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_variable_of_a_page_exists() {
    let mut known: BTreeSet<String> = OTHERS.map(str::to_owned).into();
    visit(&Cli::command(), &mut |_, option| known.extend(option.get_env().map(|name| name.to_string_lossy().into())));
    let mut wrong = BTreeSet::new();
    for (path, page) in pages() {
        let words = page.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let is_ours = |word: &&str| word.strip_prefix("ARCHON_").is_some_and(|rest| !rest.is_empty());
        let is_known = |word: &str| known.contains(word) || word.starts_with(OF_LOCKS);
        wrong.extend(words.filter(is_ours).filter(|word| !is_known(word)).map(|word| format!("{path}: {word}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Pages write a default as "`--flag` (default `value`)".
#[test]
fn defaults_on_pages_are_those_of_the_options() {
    let mut defaults: BTreeSet<(String, String)> = BTreeSet::new();
    visit(&Cli::command(), &mut |_, option| {
        let values: Vec<_> = option.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        defaults.extend(option.get_long().map(|flag| (flag.to_owned(), values.join(","))));
    });
    let mut found = 0;
    for (path, page) in pages() {
        for (before, after) in page.split("(default `").zip(page.split("(default `").skip(1)) {
            let flag = before.trim_end().strip_suffix('`').and_then(|text| text.rsplit('`').next());
            let Some(flag) = flag.and_then(|flag| flag.strip_prefix("--")) else { continue };
            let value = after.split('`').next().unwrap_or_default();
            assert!(defaults.contains(&(flag.to_owned(), value.to_owned())), "{path}: --{flag} (default `{value}`)");
            found += 1;
        }
    }
    assert!(found > 1, "only {found} defaults are found");
}

/// The message about a missing setting, and readers of the help, derive the variable from the flag.
#[test]
fn key_flag_and_variable_have_one_name() {
    let command = Cli::command();
    for kind in [MemberKind::Coordinator, MemberKind::Node] {
        for option in kind.options(&command) {
            let key = option.get_id().as_str();
            assert_eq!(option.get_long().map(|flag| flag.replace('-', "_")).as_deref(), Some(key));
            let variable = option.get_env().map(|name| name.to_string_lossy().into_owned());
            // A learner becomes a voter once: nothing for an environment.
            let wanted = (key != "learner").then(|| format!("ARCHON_{}", key.to_uppercase()));
            assert_eq!(variable, wanted, "{key}");
        }
    }
}
