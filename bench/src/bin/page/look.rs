//! Looks at the page, and counts.

use crate::Arguments;
use crate::cluster::Played;
use crate::counted::Counted;
use crate::report::{Opened, Report, Shares};
use anyhow::Context;
use archon_bench::resident_bytes;
use archon_integration_tests::browser::Browser;
use archon_load::cpu_of;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;

/// How often it is looked whether all of it is there.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a page may take to show everything.
const SHOW_LIMIT: Duration = Duration::from_secs(60);
/// How long is waited until what a page began has settled.
const REST: Duration = Duration::from_secs(5);

/// How many partitions and nodes the page shows, and when it first showed anything.
const SEEN: &str = "
    const counts = [...document.querySelectorAll('#tables canvas[data-counts]')].map(canvas => JSON.parse(canvas.dataset.counts));
    const nodes = document.querySelector('#node-table')?.getAttribute('aria-rowcount') ?? 1;
    const paint = performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null;
    return [counts.reduce((sum, one) => sum + (one.o ?? 0), 0), nodes - 1, paint]";

/// All of it.
pub(crate) async fn measure(arguments: &Arguments) -> anyhow::Result<Report> {
    let played = Played::start(arguments).await?;
    arguments.tool.talk(format_args!("all online after {:.1} s", played.settled.as_secs_f64()));
    let console = played.cluster.console_address(played.leader).to_owned();
    let counted = Counted::before(&console).await?;
    block_in_place(|| looks(arguments, &played, &counted))
}

fn looks(arguments: &Arguments, played: &Played, counted: &Counted) -> anyhow::Result<Report> {
    let browser = Browser::start().map_err(anyhow::Error::msg)?;
    let length = Duration::from_secs(arguments.seconds);
    std::thread::sleep(REST);
    let pids: Vec<u32> = (0..played.cluster.coordinator_addresses().len())
        .map(|index| played.cluster.coordinator(index).pid())
        .collect();
    let leading = pids[played.leader];
    let without = shares(&pids, &browser, counted, length);
    let memory_before = resident_bytes(leading);
    let url = format!("http://{}/", counted.address);
    let first = open(arguments, &browser, counted, &url, leading)?;
    picture(arguments, &browser, "partitions")?;
    std::thread::sleep(REST);
    let before = browser.metrics();
    let with = shares(&pids, &browser, counted, length);
    let after = browser.metrics();
    let memory_with = resident_bytes(leading);
    let second = open(arguments, &browser, counted, &url, leading)?;
    for (name, section) in [("nodes", "#nodes"), ("events", "#events")] {
        browser.run(&format!("document.querySelector('{section}').scrollIntoView()"));
        std::thread::sleep(Duration::from_millis(300));
        picture(arguments, &browser, name)?;
    }
    let complaints = browser.complaints();
    anyhow::ensure!(complaints.is_empty(), "the page complains: {complaints:?}");
    arguments.tool.keep_logs(&played.cluster)?;
    let busy = |name: &str| 100.0 * (value(&after, name) - value(&before, name)) / length.as_secs_f64();
    Ok(Report {
        nodes: arguments.nodes,
        partitions: arguments.partitions,
        settled_s: played.settled.as_secs_f64(),
        heartbeats_missed: played.missed.load(Ordering::Relaxed),
        without,
        with,
        first,
        second,
        script_percent: busy("ScriptDuration"),
        layout_percent: busy("LayoutDuration") + busy("RecalcStyleDuration"),
        heap_bytes: value(&after, "JSHeapUsedSize"),
        elements: value(&after, "Nodes"),
        coordinator_bytes: (memory_before, memory_with),
    })
}

/// Opens the page and waits until it shows everything.
fn open(
    arguments: &Arguments,
    browser: &Browser,
    counted: &Counted,
    url: &str,
    coordinator: u32,
) -> anyhow::Result<Opened> {
    // Whatever was open before is gone, and the console has noticed.
    browser.open("about:blank");
    std::thread::sleep(Duration::from_secs(3));
    let (bytes, cpu) = (counted.bytes(), cpu_of(coordinator));
    let began = Instant::now();
    browser.open(url);
    loop {
        let seen = browser.run(SEEN);
        let count = |place: usize| seen[place].as_u64().unwrap_or(0);
        if count(0) >= u64::from(arguments.partitions) && count(1) >= u64::from(arguments.nodes) {
            let took = began.elapsed();
            return Ok(Opened {
                first_paint_ms: seen[2].as_f64().context("the page painted nothing")?,
                whole_ms: took.as_secs_f64() * 1e3,
                bytes: counted.bytes() - bytes,
                page_cpu_ms: browser_cpu(browser, "renderer").as_secs_f64() * 1e3,
                coordinator_cpu_ms: cpu_of(coordinator).saturating_sub(cpu).as_secs_f64() * 1e3,
            });
        }
        anyhow::ensure!(began.elapsed() < SHOW_LIMIT, "the page shows {seen} only");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// What share of a core each takes, and what travels, for so long.
fn shares(coordinators: &[u32], browser: &Browser, counted: &Counted, length: Duration) -> Shares {
    let cpu = || -> Vec<Duration> {
        let page = ["renderer", "gpu-process"].into_iter().map(|kind| browser_cpu(browser, kind));
        coordinators.iter().map(|pid| cpu_of(*pid)).chain(page).collect()
    };
    let (before, bytes) = (cpu(), counted.bytes());
    std::thread::sleep(length);
    let seconds = length.as_secs_f64();
    let mut percent: Vec<f64> = before
        .iter()
        .zip(cpu())
        .map(|(before, after)| 100.0 * after.saturating_sub(*before).as_secs_f64() / seconds)
        .collect();
    let drawing_percent = percent.pop().unwrap_or(0.0);
    let page_percent = percent.pop().unwrap_or(0.0);
    let bytes_per_second = (counted.bytes() - bytes) as f64 / seconds;
    Shares { coordinators_percent: percent, page_percent, drawing_percent, bytes_per_second }
}

/// CPU time that the browser's processes of a kind have taken so far.
fn browser_cpu(browser: &Browser, kind: &str) -> Duration {
    browser.processes(kind).into_iter().map(cpu_of).sum()
}

fn value(metrics: &Value, name: &str) -> f64 {
    let metrics = metrics.as_array().into_iter().flatten();
    metrics.filter(|metric| metric["name"] == name).find_map(|metric| metric["value"].as_f64()).unwrap_or(0.0)
}

fn picture(arguments: &Arguments, browser: &Browser, name: &str) -> anyhow::Result<()> {
    let Some(directory) = &arguments.pictures else { return Ok(()) };
    std::fs::create_dir_all(directory)?;
    let file = directory.join(format!("{}-{name}.png", arguments.nodes));
    write(&file, &browser.picture())
}

fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    std::fs::write(file, content).with_context(|| file.display().to_string())
}
