//! `archon top` on a real terminal: its contents, no flicker, and a restored terminal.

use crate::EXE;
use archon_client::Role;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::{check, wait_for};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
/// Columns and lines of the terminal, at first and after a resize.
const SIZE: (u16, u16) = (100, 30);
const SMALLER: (u16, u16) = (60, 20);
/// Sequence that clears a screen: sent once at the start, and never again.
const CLEAR: &str = "\u{1b}[2J";
/// Sequences that switch to the terminal's alternate screen, and back.
const OTHER_SCREEN: [&str; 2] = ["\u{1b}[?1049h", "\u{1b}[?1049l"];

/// A program on a pseudo-terminal. Dropping it kills the program.
struct OnTerminal {
    program: Child,
    keys: File,
    /// The program's end, kept open to read its modes.
    terminal: File,
    /// The initial modes.
    modes: String,
    shown: String,
}

impl OnTerminal {
    /// Runs `top` on a cluster as an operator, with that certificate under TLS.
    fn of(cluster: &Cluster, arguments: &[&str]) -> Self {
        let shown = cluster.talks_by_tls().then(|| cluster.credentials(Role::Operator, "top"));
        Self::start(&cluster.coordinator_list(), shown, arguments)
    }

    fn start(coordinators: &str, shown: Option<PathBuf>, arguments: &[&str]) -> Self {
        // The program must not inherit this end: its terminal would never hang up.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keys = openpt(flags).expect("a pseudo-terminal");
        grantpt(&keys).and_then(|()| unlockpt(&keys)).expect("the terminal is let in");
        resize(&keys, SIZE);
        // Reads do not block.
        fcntl_getfl(&keys).and_then(|flags| fcntl_setfl(&keys, flags | OFlags::NONBLOCK)).expect("flags");
        let path = ptsname(&keys, Vec::new()).expect("a name").into_string().expect("a path in UTF-8");
        let terminal = File::options().read(true).write(true).open(path).expect("the terminal's other end");
        let modes = modes_of(&terminal);
        let stream = || terminal.try_clone().expect("another handle");
        // In a session of its own with this terminal; otherwise it would use the terminal of the test runner.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(EXE).arg("top").args(arguments).args(["--coordinators", coordinators]);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        if let Some(directory) = shown {
            command.arg("--tls-dir").arg(directory);
        }
        let program = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().expect("setsid of util-linux");
        Self { program, keys: keys.into(), terminal, modes, shown: String::new() }
    }

    /// Returns all output so far.
    fn shown(&mut self) -> &str {
        let mut bytes = [0; 65_536];
        let mut new = Vec::new();
        while let Ok(count @ 1..) = self.keys.read(&mut bytes) {
            new.extend_from_slice(&bytes[..count]);
        }
        // A character split between two reads spoils only its own place.
        self.shown.push_str(&String::from_utf8_lossy(&new));
        &self.shown
    }

    /// Returns the current screen.
    fn screen(&mut self) -> String {
        screen(self.shown())
    }

    fn wait_screen(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        wait_for(what, SOON, || {
            let screen = self.screen();
            check(holds(&screen), || format!("\n{screen}"))
        });
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    fn is_as_before(&self) -> bool {
        modes_of(&self.terminal) == self.modes
    }

    fn wait_exit(&mut self) -> ExitStatus {
        let ended = wait_for("archon top to end", SOON, || match self.program.try_wait() {
            Ok(Some(status)) => Ok(status),
            other => Err(format!("{other:?}\n{}", self.screen())),
        });
        ended.0
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn resize(keys: impl AsFd, (columns, lines): (u16, u16)) {
    tcsetwinsize(keys, Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
}

fn modes_of(terminal: &File) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, .. } =
        tcgetattr(terminal).expect("a terminal has modes");
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?}")
}

/// Returns a terminal's screen after this output: applies cursor moves; ignores colours.
fn screen(written: &str) -> String {
    let empty = || vec![vec![' '; SIZE.0.into()]; SIZE.1.into()];
    let mut lines = empty();
    let (mut x, mut y) = (0, 0);
    let mut characters = written.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            if let Some(place) = lines.get_mut(y).and_then(|line| line.get_mut(x)) {
                *place = character;
            }
            x += 1;
            continue;
        }
        let mut sequence = String::new();
        while !sequence.ends_with(|last: char| last.is_ascii_alphabetic()) {
            sequence.extend(characters.next().or(Some('m')));
        }
        if sequence == CLEAR[1..] {
            lines = empty();
        }
        let inner = sequence.strip_prefix('[').and_then(|rest| rest.strip_suffix('H'));
        if let Some((line, column)) = inner.and_then(|inner| inner.split_once(';')) {
            let place = |number: &str| number.parse::<usize>().expect("a place").saturating_sub(1);
            (x, y) = (place(column), place(line));
        }
    }
    let lines: Vec<String> =
        lines.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned()).collect();
    lines.join("\n")
}

#[test]
fn top_shows_the_cluster_and_restores_the_terminal() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    let mut top = OnTerminal::of(&cluster, &["--every", "200ms", "--timeout", "1s"]);
    top.wait_screen("the nodes, with what they lead", |screen| {
        let alive = |name: &str| screen.lines().any(|line| line.starts_with(name) && line.contains(" alive "));
        ["athens", "byzantium", "cyrene"].into_iter().all(alive) && screen.contains("9 of 9 online")
    });
    assert!(!top.is_as_before(), "keys are read as they are pressed");
    top.press("s");
    top.wait_screen("the nodes by status", |screen| screen.contains("1 to 3 of 3, by status"));

    // Without a quorum the picture stays, and it keeps asking until there is one again.
    for index in 0..2 {
        cluster.take_coordinator(index).kill();
    }
    top.wait_screen("the silence", |screen| screen.contains("no answer for") && screen.contains("\ncyrene "));
    assert!(top.program.try_wait().expect("a child").is_none(), "it goes on");
    cluster.start_coordinator(0);
    cluster.start_coordinator(1);
    top.wait_screen("an answer again", |screen| screen.contains(", table version ") && screen.contains("\ncyrene "));
    // Everything was drawn over the old contents.
    assert!(top.shown().matches(CLEAR).count() <= 1, "{:?}", top.shown());

    resize(&top.keys, SMALLER);
    top.wait_screen("the picture in a smaller window", |screen| {
        let fits = screen.lines().all(|line| line.chars().count() <= SMALLER.0.into());
        let lines = screen.trim_end().lines().count();
        fits && lines <= SMALLER.1.into() && screen.contains("\ncyrene ") && screen.contains("1 to 3 of 3, by status")
    });

    top.press("q");
    assert_eq!(top.wait_exit().code(), Some(0), "{}", top.screen());
    assert!(top.is_as_before());
    let shown = top.shown();
    assert_eq!(OTHER_SCREEN.map(|change| shown.matches(change).count()), [1, 1], "{shown:?}");
    assert!(shown.rfind("\u{1b}[?25h") > shown.rfind("\u{1b}[?25l"), "the cursor is back: {shown:?}");
}

#[test]
fn top_ends_on_control_c_signal_and_hangup() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let begin = || {
        let mut top = OnTerminal::of(&cluster, &[]);
        top.wait_screen("a node", |screen| screen.contains("\nathens "));
        top
    };
    let mut top = begin();
    top.press("\u{3}");
    assert_eq!((top.wait_exit().code(), top.is_as_before()), (Some(0), true));

    let mut top = begin();
    kill_process(Pid::from_child(&top.program), Signal::TERM).expect("it runs");
    assert_eq!((top.wait_exit().code(), top.is_as_before()), (Some(0), true));

    // Reading a closed terminal never ends; that must not block anything.
    let mut top = begin();
    top.keys = File::open("/dev/null").expect("nothing");
    top.wait_exit();
}

#[test]
fn top_without_answer_ends_before_using_the_terminal() {
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let mut top = OnTerminal::start(&nobody.to_string(), None, &["--timeout", "500ms"]);
    let code = top.wait_exit().code();
    assert!(matches!(code, Some(5 | 6)), "{code:?}: {}", top.screen());
    assert!(!top.shown().contains(OTHER_SCREEN[0]) && top.shown().contains("next: "), "{:?}", top.shown());
}
