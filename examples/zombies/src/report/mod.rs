//! Results for people: tables and curves as text, and charts as files.
//!
//! | Module | Content |
//! |---|---|
//! | `chart` | curves |
//! | `curves` | the curves of the charts |
//! | `design`, `others` | the design's tables, and those of relayed heartbeats |
//! | `table` | tables and numbers |

mod chart;
mod curves;
mod design;
mod others;
mod table;

use crate::Figures;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Error: a chart could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}; name a directory that can be written with --svg")]
pub struct WriteFailure {
    /// The file, or the directory.
    pub path: PathBuf,
    /// Cause.
    pub source: io::Error,
}

/// Returns the whole report.
pub fn text(figures: &Figures) -> String {
    let begins = format!("Drawn from seed {}; the same seed prints the same figures.\n", figures.arguments.seed);
    let halves = figures.halves.iter().map(design::halves);
    let rest = [
        design::limbo(figures),
        others::cut_off(figures),
        others::slow(figures),
        others::away(figures),
        others::bears(figures),
    ];
    std::iter::once(begins).chain(halves).chain(rest).collect::<Vec<_>>().join("\n")
}

/// Writes the charts into a directory, which is created if missing. Returns the files.
///
/// # Errors
/// If one cannot be written.
pub fn charts(figures: &Figures, directory: &Path) -> Result<Vec<PathBuf>, WriteFailure> {
    let not_written = |path: &Path| {
        let path = path.to_owned();
        move |source| WriteFailure { path, source }
    };
    fs::create_dir_all(directory).map_err(not_written(directory))?;
    let all = [curves::halves(&figures.halves[0]), curves::limbo(figures), curves::cut_off(figures)];
    let write = |chart: chart::Chart| {
        let path = directory.join(chart.name).with_extension("svg");
        fs::write(&path, chart.svg()).map_err(not_written(&path))?;
        Ok(path)
    };
    all.into_iter().map(write).collect()
}
