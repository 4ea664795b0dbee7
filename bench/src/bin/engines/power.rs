//! Cuts the power under an engine in the middle of writes.

use crate::workload::{Expected, Workload};
use anyhow::{Context, anyhow, bail};
use archon_integration_tests::dice::Dice;
use archon_integration_tests::image::DiskImage;
use archon_integration_tests::power::write_back_until;
use archon_kvstore_node::EngineKind;
use archon_kvstore_node::engine::{Engine, PageLimit};
use archon_types::ScanOrder;
use std::io::{BufRead, BufReader, Write};
use std::ops::Bound;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

const DISK_MEGABYTES: u64 = 2_048;

/// The child: writes batch after batch from `from` on and says on standard output what is synced.
pub(crate) fn write(kind: EngineKind, directory: &Path, seed: u64, from: u64) -> anyhow::Result<ExitCode> {
    let engine = crate::open(kind, directory)?;
    let workload = Workload::new(seed);
    let mut output = std::io::stdout().lock();
    writeln!(output, "open")?;
    output.flush()?;
    for batch in from.. {
        engine.write(&workload.changes(batch))?;
        if workload.is_synced(batch) {
            engine.sync()?;
            writeln!(output, "{batch}")?;
            output.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A writer that is killed with its owner.
struct Writer(Child);

impl Writer {
    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status()?;
        if status.success() { Ok(()) } else { Err(anyhow!("kill {signal} ended with {status}")) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a round showed.
#[derive(Debug, Default)]
struct Found {
    /// Rows that hold neither what was synced nor what was under way.
    wrong: Vec<String>,
    /// It did not open, or could not be read.
    refused: Option<String>,
    rows: usize,
}

pub(crate) fn run(kind: EngineKind, rounds: u32, seed: u64) -> anyhow::Result<ExitCode> {
    DiskImage::check_allowed().map_err(|why| anyhow!("this machine does not let a program mount disks: {why}"))?;
    let directory = tempfile::Builder::new().prefix("archon-engines-").tempdir()?;
    let disk = DiskImage::create(directory.path(), "disk", DISK_MEGABYTES).map_err(|why| anyhow!(why))?;
    let mut dice = Dice::new(seed);
    let (mut bad, mut batches, mut life) = (0, 0, 0);
    let mut run_seed = seed;
    let mut expected = Expected::default();
    for round in 1..=rounds {
        let workload = Workload::new(run_seed);
        let at = disk.path().join(format!("engine-{life}"));
        let before = expected.synced_upto();
        one_life(kind, &disk, &at, run_seed, &mut expected, &mut dice)?;
        batches += expected.synced_upto() - before;
        let found = compare(kind, &at, &workload, &expected);
        println!(
            "round {round}: synced up to batch {}, {} rows, {} wrong{}",
            expected.synced_upto(),
            found.rows,
            found.wrong.len(),
            found.refused.as_ref().map_or(String::new(), |why| format!(", refused: {why}"))
        );
        found.wrong.iter().take(10).for_each(|line| println!("    {line}"));
        if found.refused.is_some() || !found.wrong.is_empty() {
            bad += 1;
            // What is lost stays lost: begin anew beside it.
            std::fs::remove_dir_all(&at).or_else(|_| std::fs::create_dir_all(disk.path()))?;
            life += 1;
            run_seed = seed.wrapping_add(life * 1_000);
            expected = Expected::default();
        }
    }
    println!("{kind}: {rounds} power failures, {batches} batches synced, {bad} rounds lost something that was synced");
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes for a while and cuts the power; `expected` learns what was synced.
fn one_life(
    kind: EngineKind,
    disk: &DiskImage,
    at: &Path,
    seed: u64,
    expected: &mut Expected,
    dice: &mut Dice,
) -> anyhow::Result<()> {
    let from = expected.synced_upto() + 1;
    let child = Command::new(std::env::current_exe()?)
        .args(["write", kind.name()])
        .arg(at)
        .args([seed.to_string(), from.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut writer = Writer(child);
    let mut lines = BufReader::new(writer.0.stdout.take().context("a pipe")?).lines();
    let first = lines.next().context("the writer ended at once")??;
    if first != "open" {
        bail!("the writer said {first:?}");
    }
    let reader = std::thread::spawn(move || {
        let mut last = None;
        for line in lines.map_while(Result::ok) {
            last = line.parse::<u64>().ok().or(last);
        }
        last
    });
    write_back_until(std::iter::once(disk), dice, Instant::now() + dice.clone().millis(300, 2_500));
    writer.signal("-STOP")?;
    disk.cut_power().map_err(|why| anyhow!(why))?;
    drop(writer);
    let last = reader.join().map_err(|_| anyhow!("the reader panicked"))?;
    disk.replace().map_err(|why| anyhow!(why))?;
    expected.sync(&Workload::new(seed), last.unwrap_or(0));
    Ok(())
}

fn compare(kind: EngineKind, at: &Path, workload: &Workload, expected: &Expected) -> Found {
    let mut found = Found::default();
    let engine = match crate::open(kind, at) {
        Ok(engine) => engine,
        Err(error) => return Found { refused: Some(error.to_string()), ..found },
    };
    if let Err(error) = compare_rows(&*engine, workload, expected, &mut found) {
        found.refused = Some(error.to_string());
    }
    found
}

fn compare_rows(
    engine: &dyn Engine,
    workload: &Workload,
    expected: &Expected,
    found: &mut Found,
) -> anyhow::Result<()> {
    let mut allowed = expected.allowed(workload);
    for space in engine.spaces()? {
        let mut from = Bound::Unbounded;
        loop {
            let rest = (from.as_ref().map(|key: &bytes::Bytes| &key[..]), Bound::Unbounded);
            let page = engine.page(space, rest, ScanOrder::Ascending, PageLimit::bytes(1 << 20))?;
            for row in &page.rows {
                found.rows += 1;
                let is = workload.recognise(&row.value);
                let may = allowed.remove(&(space, row.key.clone())).unwrap_or_default();
                if is.is_none() || !may.contains(&is) {
                    let key = String::from_utf8_lossy(&row.key[1..]).into_owned();
                    let bytes = row.value.len();
                    found.wrong.push(format!("{space} {key}: {is:?} ({bytes} bytes), it may be {may:?}"));
                }
            }
            let Some(last) = page.rows.last().filter(|_| page.more) else { break };
            from = Bound::Excluded(last.key.clone());
        }
    }
    for ((space, key), may) in allowed {
        if !may.contains(&None) {
            let key = String::from_utf8_lossy(&key[1..]).into_owned();
            found.wrong.push(format!("{space} {key}: not there, it may be {may:?}"));
        }
    }
    Ok(())
}
