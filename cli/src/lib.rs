//! The `archon` command line: it serves (`coordinator`, `node`), administers (`status`, `rebalance`, …), reads and
//! writes (`kv`), makes certificates (`cert`), measures (`bench`), and demonstrates everything on one machine (`demo`).
//!
//! Data goes to standard output, messages and logs to standard error; the exit code is the kind of ending. The names of
//! verbs, flags, JSON fields and the exit codes are a contract with scripts.

mod admin;
mod args;
mod backup;
mod bench;
mod cert;
mod connect;
mod demo;
mod doctor;
mod documents;
mod exit;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod kv;
mod lock;
mod output;
mod recover;
mod serve;
mod shell_files;
#[cfg(feature = "otlp")]
mod spans;
mod stalls;
mod terminal;
mod text_input;
mod version;
mod wanted;

use args::{Cli, Connection, KvArgs, KvVerb, NodeArgs, QuorumSnapshotVerb, QuorumVerb, Verb};
use exit::{Exit, Failure};
use kv::{KeyForm, ScanKeys};
use output::{Format, Output};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing::Instrument as _;

/// Runs one command line, the program's name first, and returns its exit code.
///
/// It reads the process's environment, writes to its standard streams, and installs signal handlers where a verb
/// needs them; so it is called once per process, from `main`.
pub fn main_with(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(command) = lock::held_command(&args) {
        return lock::exec(command);
    }
    let asks_json = args.windows(2).any(|pair| (pair[0] == "-o" || pair[0] == "--output") && pair[1] == "json")
        || args.iter().any(|word| word == "-ojson" || word == "--output=json" || word == "--json");
    let cli = match args::parse_line(args.iter().cloned()) {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` arrive here too; clap knows which stream each belongs on.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            if asks_json && exit == Exit::Usage {
                let failure = Failure::usage(exit::plain(&error.render().to_string()), "see --help");
                let _ = Output::new(Format::Json).json(&failure.document());
            }
            let _ = error.print();
            return exit.into();
        }
    };
    let output = Output::new(cli.connection.output);
    match run(cli, &args) {
        Ok(code) => code,
        Err(failure) => {
            output.failure(&failure);
            failure.exit.into()
        }
    }
}

/// Runs a command, which was read from these words.
fn run(cli: Cli, words: &[OsString]) -> Result<ExitCode, Failure> {
    let Cli { connection, verb } = cli;
    let ended = match verb {
        // The exit code is that of its command.
        Verb::Lock(args) => return lock::run(&args, &connection),
        Verb::Completion { shell } => shell_files::complete(shell),
        Verb::Manual { directory } => shell_files::write_manual(&directory),
        Verb::Version => version::run(&Output::new(connection.output)),
        Verb::Cert(verb) => cert::run(&verb, &connection, &Output::new(connection.output)),
        Verb::Quorum(QuorumVerb::Recover(args)) => recover::run(&args, &Output::new(connection.output)),
        Verb::Quorum(QuorumVerb::Snapshot(QuorumSnapshotVerb::Verify(args))) => {
            recover::verify(&args, &Output::new(connection.output))
        }
        Verb::Coordinator(args) => serve::coordinator(&args.log, words),
        Verb::Node(args) if args.verb.is_none() => serve::node(&args.log, words),
        Verb::Participant(args) => serve::participant(&args, &connection),
        Verb::Demo(args) => demo::run(&args, &connection),
        Verb::Bench(args) => bench::run(&args, &connection),
        verb => {
            #[cfg(feature = "otlp")]
            let (_spans, whole) = whole(&verb)?;
            #[cfg(not(feature = "otlp"))]
            let whole = tracing::Span::none();
            match verb {
                Verb::Backup(verb) => on_runtime(async { backup::run(&verb, &connection).await }.instrument(whole)),
                Verb::Kv(args) => on_runtime(kv_verb(args, &connection).instrument(whole)),
                Verb::Doctor(args) => {
                    let output = Output::new(connection.output);
                    on_runtime(doctor::run(&args, &connection, &output).instrument(whole))
                }
                verb => on_runtime(admin_verb(verb, &connection).instrument(whole)),
            }
        }
    };
    ended.map(ExitCode::from)
}

/// Starts the export of spans, the first of which is that of the whole command.
#[cfg(feature = "otlp")]
fn whole(verb: &Verb) -> Result<(Option<spans::Spans>, tracing::Span), Failure> {
    use tracing_subscriber::layer::SubscriberExt as _;
    use tracing_subscriber::util::SubscriberInitExt as _;
    let Some(spans) = spans::Spans::start("archon")? else { return Ok((None, tracing::Span::none())) };
    let started = tracing_subscriber::registry().with(spans.layer()).try_init();
    started.map_err(|error| Failure::failed(format!("starting the export of spans: {error}")))?;
    // Only the verb's name: keys and values are not exported.
    let verb = format!("{verb:?}").split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
    let whole = tracing::info_span!(target: archon_client::trace::TARGET, "command", otel.name = %format_args!("archon \
                                                                           {verb}"));
    Ok((Some(spans), whole))
}

/// Returns the path of this program, to start it in another role.
fn own_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::failed(format!("looking for this program: {error}")))
}

fn on_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    run_on(&mut tokio::runtime::Builder::new_multi_thread(), work)
}

/// Runs a verb on a runtime of this kind, without waiting for tasks that it left behind.
fn run_on<T>(
    builder: &mut tokio::runtime::Builder,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime =
        builder.enable_all().build().map_err(|error| Failure::failed(format!("starting the runtime: {error}")))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

async fn admin_verb(verb: Verb, connection: &Connection) -> Result<Exit, Failure> {
    let output = Output::new(connection.output);
    let admin = connect::admin(connection)?;
    // `top` draws on the whole screen and shows this itself.
    let admin = if matches!(verb, Verb::Top(_)) { admin } else { connect::with_notice(&admin) };
    let timeout = connection.timeout;
    match verb {
        Verb::Status(args) => admin::status::run(&args, &admin, &output).await,
        Verb::Check(args) => admin::check::run(&args, &admin, &output).await,
        Verb::Events(args) => admin::events::run(&args, &admin, &output).await,
        Verb::Top(args) => admin::top::run(&args, &admin, &output).await,
        Verb::Node(NodeArgs { verb: Some(verb), .. }) => admin::node::run(&verb, &admin, timeout, &output).await,
        Verb::Quorum(verb) => admin::quorum::run(&verb, &admin, &output).await,
        Verb::Upgrade(verb) => admin::quorum::upgrade::run(&verb, &admin, &output).await,
        Verb::Access(verb) => admin::access::run(&verb, &admin, connection.tls_dir.is_some(), &output).await,
        Verb::Config(verb) => admin::config::run(&verb, &admin, &output).await,
        Verb::Table(verb) => admin::table::run(&verb, &admin, &output).await,
        Verb::Partition(verb) => admin::partition::run(&verb, &admin, timeout, &output).await,
        Verb::Rebalance(verb) => admin::rebalance::run(&verb, &admin, &output).await,
        Verb::Backup(_)
        | Verb::Bench(_)
        | Verb::Cert(_)
        | Verb::Completion { .. }
        | Verb::Manual { .. }
        | Verb::Coordinator(_)
        | Verb::Demo(_)
        | Verb::Doctor(_)
        | Verb::Kv(_)
        | Verb::Lock(_)
        | Verb::Node(_)
        | Verb::Participant(_)
        | Verb::Version => Err(Failure::failed("this verb does not ask the quorum")),
    }
}

async fn kv_verb(args: KvArgs, connection: &Connection) -> Result<Exit, Failure> {
    let KvArgs { table, via, hex, verb } = args;
    let (output, form) = (Output::new(connection.output), KeyForm::of(hex));
    let table = match &verb {
        KvVerb::Export(args) => args.of.clone(),
        KvVerb::Import(args) => args.into.clone(),
        _ => table,
    };
    let connect = connect::client(connection, &table, via.as_deref());
    // Input is checked before any request.
    match verb {
        KvVerb::Put { key, value, ttl } => {
            let (key, value) = (form.key(&key)?, kv::value_of(&value)?);
            kv::put(&key, value, ttl, &connect.await?, &output).await
        }
        KvVerb::Get { key, stale: false, raw } => kv::get(&form.key(&key)?, raw, &connect.await?, &output).await,
        KvVerb::Get { key, stale: true, raw } => kv::get_stale(&form.key(&key)?, raw, &connect.await?, &output).await,
        KvVerb::Del { key } => kv::delete(&form.key(&key)?, &connect.await?, &output).await,
        KvVerb::Cas { key, value, revision } => {
            let (key, value) = (form.key(&key)?, kv::value_of(&value)?);
            kv::compare_and_set(&key, revision, value, &connect.await?, &output).await
        }
        KvVerb::Incr { key, by } => kv::increment(&form.key(&key)?, by, &connect.await?, &output).await,
        KvVerb::Batch { file, atomic: true } => {
            let steps = kv::batch::read(file.as_deref(), form)?;
            kv::batch::check_atomic(&steps)?;
            kv::batch::run_atomic(steps, form, &connect.await?, &output).await
        }
        KvVerb::Batch { file, atomic: false } => {
            let steps = kv::batch::read(file.as_deref(), form)?;
            kv::batch::run(steps, form, &connect.await?, &output).await
        }
        KvVerb::Scan(args) => {
            let keys = ScanKeys::new(&args, form)?;
            kv::scan(&args, &keys, &connect.await?, &output).await
        }
        KvVerb::Export(_) | KvVerb::Import(_) if hex => Err(Failure::usage(
            "--hex is about keys on the command line; files of rows mark the keys that are not text",
            "omit --hex",
        )),
        KvVerb::Export(args) => {
            kv::export::check(&args, &output)?;
            kv::export::run(&args, &connect.await?, &output).await
        }
        KvVerb::Import(args) => {
            kv::import::check(&args)?;
            match args.dry_run {
                true => kv::import::dry_run(&args, &output).await,
                false => kv::import::run(&args, &connect.await?, &output).await,
            }
        }
    }
}
