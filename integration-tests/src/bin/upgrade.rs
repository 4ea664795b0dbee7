//! Rolling upgrade from another revision to this one while clients work; their histories are checked. See [`USAGE`].

use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Options, ProcessExt, Release, Scene, WorkloadOptions};
use archon_types::PROTOCOL_NEWEST;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: upgrade --from REV       build that revision of this repository, and upgrade a cluster from it to this one
       upgrade --from-program P the same from a program that is there";

/// Directory in which revisions are checked out and built.
const DIRECTORY: &str = "target/upgrade";

fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let status = command.status().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown} ended with {status}")) }
}

/// Builds a revision and returns the path of its program.
fn build(revision: &str) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let known = known_commit(&root, revision)?;
    let (tree, target) = (root.join(DIRECTORY).join(&known), root.join(DIRECTORY).join("build"));
    if !tree.exists() {
        run(Command::new("git")
            .arg("-C")
            .arg(&root)
            .args(["worktree", "add", "--force", "--detach"])
            .arg(&tree)
            .arg(&known))?;
    }
    let mut cargo = Command::new("cargo");
    // Not by the name of the package, which differs between revisions.
    cargo.current_dir(&tree).env("CARGO_TARGET_DIR", &target).args([
        "build",
        "--locked",
        "--manifest-path",
        "cli/Cargo.toml",
    ]);
    let built = run(&mut cargo);
    run(Command::new("git").arg("-C").arg(&root).args(["worktree", "remove", "--force"]).arg(&tree))?;
    built.map(|()| target.join("debug/archon"))
}

/// Returns the commit of a revision.
fn known_commit(root: &Path, revision: &str) -> Result<String, String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["rev-parse", "--verify", "--end-of-options", &format!("{revision}^{{commit}}")]);
    let output = git.output().map_err(|error| format!("git: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn upgrade(under_test: &Path, older: PathBuf) {
    let older = Release { program: Some(older), protocol_max: None };
    let options = Options { release: Some(older.clone()), partitions: 12, replication: 3, ..Options::default() };
    let load = WorkloadOptions::default();
    // No client gives up early: no operation may fail.
    let load = WorkloadOptions { hasty: load.timeout, ..load };
    let report = Scene::play(&under_test.display().to_string(), "upgrade", &options, &load, |scene| {
        let newer = Release::default();
        scene.roll_coordinators(&newer);
        scene.roll_node("athens", &newer);
        scene.say("and back, as far as it has come");
        scene.roll_node("athens", &older);
        scene.roll_coordinators(&older);
        scene.say("and forward to the end");
        scene.roll(&newer);
        scene.cluster.wait_protocol(PROTOCOL_NEWEST);
        scene.say("from now on the older version is refused");
        let ended = scene.cluster.take_node("athens").terminate(TIMEOUT);
        assert!(ended.success(), "athens did not end in order: {ended}");
        scene.cluster.install("athens", &older);
        scene.cluster.start_node("athens");
        let mut refused = scene.cluster.take_node("athens");
        let ended = refused.wait_exit(TIMEOUT);
        assert!(!ended.success(), "the older version runs on data of the newer one");
        println!("{}", refused.log_tail(1).trim_end());
        scene.cluster.install("athens", &newer);
        scene.cluster.start_node("athens");
        scene.wait_whole();
    });
    if let Some(report) = report {
        report.assert_no_failure();
        println!("longest wait of a client: {:?} over {} operations", report.longest_gap, report.answered);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let older = match &arguments[..] {
        [flag, revision] if flag == "--from" => build(revision),
        [flag, program] if flag == "--from-program" => std::path::absolute(program).map_err(|error| error.to_string()),
        _ => Err(USAGE.to_owned()),
    };
    let older = match older {
        Ok(older) if older.is_file() => older,
        Ok(older) => {
            eprintln!("{} is no program", older.display());
            return ExitCode::from(2);
        }
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let Some(under_test) = std::env::current_exe().ok().map(|exe| exe.with_file_name("archon-under-test")) else {
        eprintln!("cannot find the program under test beside this one");
        return ExitCode::from(2);
    };
    match catch_unwind(AssertUnwindSafe(|| upgrade(&under_test, older))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
