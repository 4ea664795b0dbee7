//! The tutorial tested literally: one shell runs every command of the page in order, and each output is compared with the page.

use crate::EXE;
use archon_integration_tests::cluster::{Room, TIMEOUT, Turn};
use archon_testkit::{check, wait_for};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Text that differs from run to run; a line of its own stands for any number of lines.
const ANY: &str = "…";

/// Commands that change nothing: their output is awaited. All others run once.
const READS: [&str; 8] = [
    "archon status",
    "archon check",
    "archon node list",
    "archon partition list",
    "archon quorum list",
    "archon upgrade status",
    "archon cert members",
    "archon kv scan",
];

/// Commands of the page, with the output that it shows.
#[derive(PartialEq, Eq, Debug)]
struct Step {
    commands: String,
    output: Option<String>,
}

impl Step {
    /// Returns true if every command only reads, or sets a variable of the shell.
    fn only_reads(&self) -> bool {
        let reads = |line: &str| line.starts_with("export ") || READS.iter().any(|verb| line.starts_with(verb));
        self.commands.lines().all(reads)
    }
}

/// Returns the `sh` blocks of a page, each with the `text` block that follows it.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.split("```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').expect("a block has lines");
        match (language, steps.last_mut()) {
            ("sh", _) => steps.push(Step { commands: text.to_owned(), output: None }),
            ("text", Some(Step { output: output @ None, .. })) => *output = Some(text.to_owned()),
            _ => panic!("a block of commands or of their output, not {language:?}"),
        }
    }
    steps
}

/// Returns the lines of an output without empty ones; spaces that align columns are joined.
fn lines(output: &str) -> Vec<String> {
    let joined = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    output.lines().map(joined).filter(|line| !line.is_empty()).collect()
}

/// Returns true if a line fits a line of the page.
fn fits_line(wanted: &str, found: &str) -> bool {
    let parts: Vec<&str> = wanted.split(ANY).map(str::trim).collect();
    let [first, between @ .., last] = &parts[..] else { return wanted == found };
    let Some(mut rest) = found.strip_prefix(first) else { return false };
    for part in between {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Returns true if an output fits the output on the page.
fn fits(wanted: &[String], found: &[String]) -> bool {
    match (wanted, found) {
        ([], found) => found.is_empty(),
        ([first, rest @ ..], found) if first == ANY => (0..=found.len()).any(|skipped| fits(rest, &found[skipped..])),
        ([first, rest @ ..], [line, others @ ..]) => fits_line(first, line) && fits(rest, others),
        (_, []) => false,
    }
}

/// A shell that runs commands one after the other. Dropping it kills it with everything that it has started.
struct Shell {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    fn start(directory: &Path) -> Self {
        let bin = directory.join("bin");
        fs::create_dir(&bin).expect("a directory");
        symlink(EXE, bin.join("archon")).expect("a link");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash")
            .current_dir(directory)
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("bash runs");
        let input = shell.stdin.take().expect("a pipe");
        let output = BufReader::new(shell.stdout.take().expect("a pipe"));
        Self { shell, input, output }
    }

    /// Runs commands, and returns what they print and their exit code.
    fn run(&mut self, commands: &str) -> (String, i32) {
        const END: &str = "@@end ";
        write!(self.input, "{{\n{commands}}} 2>&1\nprintf '\\n{END}%s\\n' $?\n").expect("the shell reads");
        self.input.flush().expect("the shell reads");
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).expect("text"), 0, "the shell ended: {printed}");
            if let Some(code) = line.strip_prefix(END) {
                return (printed, code.trim().parse().expect("an exit code"));
            }
            printed.push_str(&line);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.shell.id()).ok().and_then(Pid::from_raw) {
            // It fails if the shell has ended, and nothing else runs then.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.shell.wait();
    }
}

#[test]
fn tutorial_commands_print_what_the_page_shows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tutorial/tutorial.md");
    let page = fs::read_to_string(path).expect("the tutorial");
    let steps = steps(&page);
    assert!(steps.len() > 30, "only {} steps found", steps.len());
    // Loopback addresses of this process alone stand for the hosts of the page.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let hosts = format!("127.{}.{low}.", 1 + high % 254);
    let _turn = Turn::take(Room::Part);
    let directory = tempfile::tempdir().expect("a directory");
    let mut shell = Shell::start(directory.path());
    for step in steps {
        let commands = step.commands.replace("127.0.0.", &hosts);
        println!("$ {commands}");
        let wanted = step.output.as_deref().map(lines);
        let mut run = || {
            let (printed, code) = shell.run(&commands);
            let printed = printed.replace(&hosts, "127.0.0.");
            let is_shown = wanted.as_ref().is_none_or(|wanted| fits(wanted, &lines(&printed)));
            let page = step.output.as_deref().unwrap_or_default();
            check(is_shown && code == 0, || format!("exit code {code}, printed\n{printed}\nthe page shows\n{page}"))
        };
        if step.only_reads() {
            wait_for(&commands, TIMEOUT, run);
        } else {
            run().unwrap_or_else(|wrong| panic!("{commands}\n{wrong}"));
        }
    }
}

#[test]
fn steps_are_extracted_from_a_page() {
    let page = "# A\n\n```sh\narchon a\n```\n\nb\n\n```text\nc …\n```\n\n```sh\narchon status\n```\n";
    let step = |commands: &str, output: Option<&str>| Step {
        commands: commands.to_owned(),
        output: output.map(str::to_owned),
    };
    assert_eq!(steps(page), [step("archon a\n", Some("c …\n")), step("archon status\n", None)]);
    assert!(!steps(page)[0].only_reads() && steps(page)[1].only_reads());
}

#[test]
fn outputs_are_compared_with_wildcards() {
    let fits = |wanted: &str, found: &str| fits(&lines(wanted), &lines(found));
    assert!(fits("a  …\n…\n … b", "a 1\nx\ny\n2 b"));
    assert!(fits("…\nlast 3", "last   3\n"));
    assert!(fits("from … to … end", "from 1 to 2 3 end"));
    assert!(!fits("a", "a b"));
    assert!(!fits("a …", "b a 1"));
    assert!(!fits("…\na", "a\nb"));
}
