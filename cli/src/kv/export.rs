//! `archon kv export`: all rows of a table as text.

use super::progress::Progress;
use super::rows::RowWriter;
use crate::args::ExportArgs;
use crate::backup::check_whole;
use crate::documents::ExportSummary;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::terminal::TerminalWriter;
use archon_client::Client;
use futures::TryStreamExt as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Rows per request; a page of them has at most 4 MiB.
const PAGE_ROWS: u32 = 1_000;
/// Size of one write, in bytes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Rejects two kinds of data on one stream.
///
/// # Errors
/// `-o json` without a file.
pub(crate) fn check(args: &ExportArgs, output: &Output) -> Result<(), Failure> {
    match output.is_json() && args.to.is_none() {
        true => Err(Failure::usage(
            "rows go to standard output, where -o json would print its document",
            "give --to FILE, or omit -o json: rows are JSON lines anyway",
        )),
        false => Ok(()),
    }
}

/// Writes the rows, page by page.
pub(crate) async fn run(args: &ExportArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    check_whole(client, &args.of).await?;
    let Some(path) = &args.to else {
        let stdout: Box<dyn Write> =
            if output.terminal { Box::new(TerminalWriter::new(io::stdout())) } else { Box::new(io::stdout()) };
        let out = BufWriter::with_capacity(BUFFER_BYTES, stdout);
        let (out, progress) = rows(args, out, client, output).await?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.flush()?;
        output.talk(progress.text());
        return Ok(Exit::Done);
    };
    let wrong = |error: io::Error| Failure::failed(format!("writing {}: {error}", path.display()));
    let destination = Destination::open(path).map_err(|error| not_begun(path, &error))?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, destination);
    let (out, progress) = rows(args, out, client, output).await?;
    let bytes_written =
        out.into_inner().map_err(io::IntoInnerError::into_error).and_then(Destination::keep).map_err(wrong)?;
    if output.is_json() {
        let (table, file) = (args.of.clone(), path.display().to_string());
        output.json(&ExportSummary { table, file, rows_written: progress.rows, bytes_written })?;
    } else {
        output.talk(format!("{} to {}", progress.text(), path.display()));
    }
    Ok(Exit::Done)
}

/// Explains why no file could be created, without the name of the temporary file.
fn not_begun(path: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "make that directory first, or name a file in one that is there",
        _ => "name a file in a directory that you may write to",
    };
    let why = match error.kind() {
        io::ErrorKind::NotFound => "its directory is not there".to_owned(),
        kind => kind.to_string(),
    };
    Failure::failed(format!("writing {}: {why}", path.display())).with_remedy(remedy)
}

async fn rows<W: Write>(args: &ExportArgs, out: W, client: &Client, output: &Output) -> Result<(W, Progress), Failure> {
    let mut writer = RowWriter::new(args.format.of(args.to.as_deref()), out)?;
    let mut progress = Progress::new("exported", output);
    let mut lost = 0;
    let entries = client.scan("").limit(PAGE_ROWS).entries();
    tokio::pin!(entries);
    loop {
        match entries.try_next().await {
            Ok(Some(entry)) => {
                writer.write(&entry.key, &entry.value, entry.expires_at_ms)?;
                lost += u64::from(entry.expires_at_ms.is_some() && !writer.keeps_expiry());
                progress.add(1, entry.key.len() + entry.value.len());
            }
            Ok(None) => {
                lost_expiries(lost).iter().for_each(|text| output.talk(text));
                return Ok((writer.finish()?, progress));
            }
            Err(error) => {
                let failure = Failure::from(error);
                let message = format!("{}, and not all: {}", progress.text(), failure.message);
                return Err(Failure { message, ..failure });
            }
        }
    }
}

/// Returns the warning about values that lose their expiry; `None` if there are none.
fn lost_expiries(lost: u64) -> Option<String> {
    let why = "CSV has no column for that, so an import would keep them without an expiry; export JSON lines instead";
    (lost > 0).then(|| format!("warning: {lost} of the exported values expire, and {why}"))
}

/// Destination of an export: a file that gets its name once it is complete; a pipe or a device is written directly.
enum Destination {
    New { file: NamedTempFile, path: PathBuf, bytes: u64 },
    There { file: File, bytes: u64 },
}

impl Destination {
    fn open(path: &Path) -> io::Result<Self> {
        // Follows links: the target may be a pipe.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Ok(Self::There { file: File::options().write(true).open(path)?, bytes: 0 });
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Self::New { file: NamedTempFile::new_in(folder)?, path: path.to_owned(), bytes: 0 })
    }

    /// Gives the file its name, and returns its length.
    fn keep(self) -> io::Result<u64> {
        match self {
            Self::There { bytes, .. } => Ok(bytes),
            Self::New { file, path, bytes } => {
                file.as_file().sync_all()?;
                file.persist(path)?;
                Ok(bytes)
            }
        }
    }
}

impl Write for Destination {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let (file, bytes): (&mut dyn Write, _) = match self {
            Self::New { file, bytes, .. } => (file, bytes),
            Self::There { file, bytes } => (file, bytes),
        };
        let count = file.write(buffer)?;
        *bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::New { file, .. } => file.flush(),
            Self::There { file, .. } => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_warns_of_lost_expiries() {
        assert_eq!(lost_expiries(0), None);
        let text = lost_expiries(3).unwrap();
        assert!(text.starts_with("warning: 3 of the exported values expire") && text.contains("JSON lines"), "{text}");
        let keeps = |format| RowWriter::new(format, Vec::new()).unwrap().keeps_expiry();
        assert!(keeps(crate::args::RowFormat::Jsonl) && !keeps(crate::args::RowFormat::Csv));
    }

    #[test]
    fn missing_directory_of_an_export_is_reported() {
        let path = Path::new("/not-there/x.csv");
        let failed = not_begun(path, &Destination::open(path).err().unwrap());
        assert_eq!(failed.message, "writing /not-there/x.csv: its directory is not there");
        assert!(failed.remedy.is_some());
    }

    #[test]
    fn failed_export_leaves_no_partial_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rows.jsonl");
        let mut half = Destination::open(&path).unwrap();
        half.write_all(b"half").unwrap();
        drop(half);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut whole = Destination::open(&path).unwrap();
        whole.write_all(b"whole").unwrap();
        assert_eq!(whole.keep().unwrap(), 5);
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        let device = Destination::open(Path::new("/dev/null")).unwrap();
        assert!(matches!(device, Destination::There { .. }), "it would have been replaced by a file");
    }
}
