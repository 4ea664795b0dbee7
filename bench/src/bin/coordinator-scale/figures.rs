//! Figures with what they are measured against, so that growth is seen.

use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// The outcome of one size of cluster.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    /// Nodes.
    pub(crate) nodes: usize,
    /// Partitions of all tables.
    pub(crate) partitions: usize,
    /// Copies of each partition.
    pub(crate) replication: u8,
    /// In order of measuring.
    pub(crate) figures: Vec<Figure>,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: &'static str,
    /// How much it is.
    pub(crate) value: f64,
    /// In what: `ms`, `us`, `ns`, `bytes`, `count`, `%`.
    pub(crate) unit: &'static str,
}

impl Figures {
    /// None yet.
    pub(crate) fn new(nodes: usize, partitions: usize, replication: u8) -> Self {
        Self { nodes, partitions, replication, figures: Vec::new() }
    }

    /// Adds a figure and prints it at once, so that a long run shows progress.
    pub(crate) fn add(&mut self, name: &'static str, value: f64, unit: &'static str) {
        eprintln!("  {}/{}: {name}: {} {unit}", self.nodes, self.partitions, shown(value));
        self.figures.push(Figure { name, value, unit });
    }

    /// Does the work once and adds how long it took, in milliseconds.
    pub(crate) fn timed<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let value = work();
        self.add(name, began.elapsed().as_secs_f64() * 1e3, "ms");
        value
    }

    /// Does the work `times` times and adds the mean, in microseconds.
    pub(crate) fn mean(&mut self, name: &'static str, times: usize, mut work: impl FnMut(usize)) {
        let began = Instant::now();
        (0..times).for_each(&mut work);
        self.add(name, began.elapsed().as_secs_f64() * 1e6 / times.max(1) as f64, "us");
    }
}

fn shown(value: f64) -> String {
    match value {
        value if value >= 1_000.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Prints one row per figure, one column per size, and at the end how much the figure grew from the first size to the
/// last, beside how much the input did.
pub(crate) fn print(sizes: &[Figures]) {
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return };
    let mut header = String::from("| | unit |");
    for size in sizes {
        header += &format!(" {} nodes, {} partitions |", size.nodes, size.partitions);
    }
    println!("{header} growth (input: {:.1}) |", last.partitions as f64 / first.partitions as f64);
    println!("|{}", "---|".repeat(sizes.len() + 3));
    let by_name = |size: &Figures| -> BTreeMap<&'static str, f64> {
        size.figures.iter().map(|figure| (figure.name, figure.value)).collect()
    };
    let values: Vec<_> = sizes.iter().map(by_name).collect();
    for figure in &last.figures {
        let mut row = format!("| {} | {} |", figure.name, figure.unit);
        for values in &values {
            row += &values.get(figure.name).map_or_else(|| " – |".to_owned(), |value| format!(" {} |", shown(*value)));
        }
        let before = values[0].get(figure.name).copied().filter(|before| *before > 0.0);
        row += &before.map_or_else(|| " – |".to_owned(), |before| format!(" {:.1} |", figure.value / before));
        println!("{row}");
    }
}
