//! What was found, and how it is printed.

use serde::Serialize;

/// Everything that was measured.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    pub(crate) nodes: u32,
    pub(crate) partitions: u32,
    pub(crate) settled_s: f64,
    pub(crate) heartbeats_missed: usize,
    /// Before anybody looks.
    pub(crate) without: Shares,
    /// While one page is open.
    pub(crate) with: Shares,
    pub(crate) first: Opened,
    /// The same browser once more: what of the page it has kept need not come again.
    pub(crate) second: Opened,
    pub(crate) script_percent: f64,
    pub(crate) layout_percent: f64,
    pub(crate) heap_bytes: f64,
    pub(crate) elements: f64,
    /// Resident memory of the leading coordinator, without and with a page.
    pub(crate) coordinator_bytes: (f64, f64),
}

/// Shares of a core, and bytes.
#[derive(Serialize, Debug)]
pub(crate) struct Shares {
    pub(crate) coordinators_percent: Vec<f64>,
    /// The process in which the page runs.
    pub(crate) page_percent: f64,
    /// The process that puts its pictures on the screen, which is done by the processor where there is no other.
    pub(crate) drawing_percent: f64,
    pub(crate) bytes_per_second: f64,
}

/// A page that was opened, until everything is seen.
#[derive(Serialize, Debug)]
pub(crate) struct Opened {
    pub(crate) first_paint_ms: f64,
    pub(crate) whole_ms: f64,
    pub(crate) bytes: u64,
    pub(crate) page_cpu_ms: f64,
    pub(crate) coordinator_cpu_ms: f64,
}

pub(crate) fn print(report: &Report) {
    println!(
        "{} nodes, {} partitions; {} heartbeats of all were missed",
        report.nodes, report.partitions, report.heartbeats_missed
    );
    for (which, opened) in [("first", &report.first), ("second", &report.second)] {
        println!(
            "opened for the {which} time: first paint {:.0} ms, everything {:.0} ms, {:.1} kB, CPU of the page so far {:.0} ms, of its coordinator {:.0} ms",
            opened.first_paint_ms,
            opened.whole_ms,
            opened.bytes as f64 / 1e3,
            opened.page_cpu_ms,
            opened.coordinator_cpu_ms
        );
    }
    for (which, shares) in [("without a page", &report.without), ("with a page", &report.with)] {
        let each: Vec<String> = shares.coordinators_percent.iter().map(|percent| format!("{percent:.1}")).collect();
        println!(
            "{which}: coordinators {} % of a core, page {:.1} %, drawing {:.1} %, {:.1} kB/s",
            each.join(" + "),
            shares.page_percent,
            shares.drawing_percent,
            shares.bytes_per_second / 1e3
        );
    }
    println!(
        "within the page: scripts {:.1} %, layout and styles {:.1} %, heap {:.1} MB, {:.0} elements",
        report.script_percent,
        report.layout_percent,
        report.heap_bytes / 1e6,
        report.elements
    );
    println!(
        "memory of the leading coordinator: {:.0} MB without, {:.0} MB with a page",
        report.coordinator_bytes.0 / 1e6,
        report.coordinator_bytes.1 / 1e6
    );
}
