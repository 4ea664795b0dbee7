//! The audit file, and its predecessors.

use super::record::{Record, last_seq};
use super::rotation::{Rotation, path_of};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Name in the data directory.
pub(crate) const FILE: &str = "audit.jsonl";
/// Number of bytes examined at the end of a file: many lines.
const TAIL_BYTES: u64 = 64 * 1024;

/// The audit file of a data directory. Any failure is logged, and retried with the next line.
#[derive(Debug)]
pub(crate) struct AuditFile {
    path: PathBuf,
    rotation: Rotation,
    current: Option<CurrentFile>,
    /// Number of the last line; unknown until the file was opened once.
    seq: Option<u64>,
    /// Number of lines lost since the last appended one, including dropped ones before them.
    lost: u64,
}

#[derive(Debug)]
struct CurrentFile {
    file: File,
    /// Offset of the end of its last whole line.
    length: u64,
}

impl AuditFile {
    /// Creates the audit file of `directory`, without opening anything.
    pub(crate) fn new(directory: &Path, rotation: Rotation) -> Self {
        Self { path: directory.join(FILE), rotation, current: None, seq: None, lost: 0 }
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens or creates it; a partial line left by a crash is cut off.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        // The file may have been moved away: appended lines must not be lost with it.
        if let Some(current) = &self.current
            && is_at(&current.file, &self.path)
        {
            return Ok(());
        }
        self.current = None;
        let mut file = archon_durable::private().read(true).append(true).create(true).open(&self.path)?;
        let mut length = file.metadata()?.len();
        let mut tail = tail(&file, length)?;
        let torn = torn(&tail);
        if torn > 0 && torn as u64 == length.min(TAIL_BYTES) && length > TAIL_BYTES {
            // Far more than one of our lines: it stays, and the next line starts on a new line.
            file.write_all(b"\n")?;
            length += 1;
        } else if torn > 0 {
            let path = self.path.display();
            tracing::warn!(%path, bytes = torn, "the last line of the audit file was torn, and is cut off");
            length -= torn as u64;
            file.set_len(length)?;
        }
        tail.truncate(tail.len() - torn);
        if self.seq.is_none() {
            self.seq = match last_seq(&tail) {
                Some(seq) => Some(seq),
                None => Some(self.seq_before()?),
            };
        }
        archon_durable::sync_directory(archon_durable::parent_of(&self.path))?;
        self.current = Some(CurrentFile { file, length });
        Ok(())
    }

    /// Returns the last number in the file before this one.
    fn seq_before(&self) -> io::Result<u64> {
        match File::open(path_of(&self.path, 1)) {
            Ok(file) => Ok(last_seq(&tail(&file, file.metadata()?.len())?).unwrap_or(0)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Appends a line. A failed one is counted in the next.
    ///
    /// # Errors
    /// Those of the file system; nothing was appended then.
    pub(crate) fn append(&mut self, record: &Record) -> io::Result<()> {
        let appended = self.append_line(record);
        self.lost = if appended.is_ok() { 0 } else { self.lost.saturating_add(record.dropped).saturating_add(1) };
        appended
    }

    fn append_line(&mut self, record: &Record) -> io::Result<()> {
        self.open()?;
        let seq = self.seq.unwrap_or(0).saturating_add(1);
        let line = record.line(seq, self.lost);
        let length = self.current.as_ref().map_or(0, |current| current.length);
        if self.rotation.is_full(length, line.len() as u64) {
            self.rotate()?;
            self.open()?;
        }
        let Some(current) = &mut self.current else { return Err(io::Error::other("the audit file is not open")) };
        if let Err(error) = current.file.write_all(&line) {
            // A partial line is cut off: now, or when the file is opened again.
            if current.file.set_len(current.length).is_err() {
                self.current = None;
            }
            return Err(error);
        }
        current.length += line.len() as u64;
        self.seq = Some(seq);
        Ok(())
    }

    /// Syncs appended lines to the disk.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.current.as_ref().map_or(Ok(()), |current| current.file.sync_data())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        // Even if a rename fails, the next line goes to the file that is there then.
        self.current = None;
        for (from, to) in self.rotation.moves(|place| path_of(&self.path, place).exists()) {
            archon_durable::rename(&path_of(&self.path, from), &path_of(&self.path, to))?;
        }
        Ok(())
    }
}

/// Returns true if the open file is the one with this name.
fn is_at(file: &File, path: &Path) -> bool {
    let named = std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let held = file.metadata().map(|found| (found.dev(), found.ino()));
    matches!((named, held), (Ok(named), Ok(held)) if named == held)
}

/// Returns the end of a file of that length.
fn tail(mut file: &File, length: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

/// Returns the number of bytes at the end of a file that form no whole line.
fn torn(tail: &[u8]) -> usize {
    tail.len() - tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::Millis;
    use serde_json::Value;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn record() -> Record {
        Record::bare(Millis::new(1))
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn seqs(path: &Path) -> Vec<u64> {
        lines(path).iter().map(|line| line["seq"].as_u64().unwrap()).collect()
    }

    #[test]
    fn numbers_continue_after_restart_and_torn_line_is_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let open = || AuditFile::new(directory.path(), Rotation::default());
        let mut file = open();
        file.append(&record()).unwrap();
        file.append(&Record { dropped: 7, ..record() }).unwrap();
        file.sync().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(file);
        let mut torn = fs::OpenOptions::new().append(true).open(&path).unwrap();
        torn.write_all(b"{\"seq\":3,\"at\":\"20").unwrap();
        open().append(&record()).unwrap();
        assert_eq!(seqs(&path), [1, 2, 3]);
        assert_eq!(lines(&path)[1]["dropped"], 7);
        // A file without a whole line.
        fs::write(&path, b"{\"seq\":9").unwrap();
        open().append(&record()).unwrap();
        assert_eq!(seqs(&path), [1], "nothing tells of an earlier one");
    }

    #[test]
    fn lines_go_to_new_file_after_a_move() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let mut file = AuditFile::new(directory.path(), Rotation::default());
        file.append(&record()).unwrap();
        let away = directory.path().join("kept elsewhere");
        fs::rename(&path, &away).unwrap();
        file.append(&record()).unwrap();
        assert_eq!((seqs(&away), seqs(&path)), (vec![1], vec![2]));
        fs::remove_file(&path).unwrap();
        file.append(&record()).unwrap();
        assert_eq!(seqs(&path), [3]);
    }

    #[test]
    fn foreign_data_stays_and_next_line_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        fs::write(&path, vec![0; 100_000]).unwrap();
        AuditFile::new(directory.path(), Rotation::default()).append(&record()).unwrap();
        let found = fs::read(&path).unwrap();
        assert_eq!(last_seq(&found[100_001..]), Some(1));
    }

    #[test]
    fn full_file_is_rotated_and_oldest_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let length = record().line(1, 0).len() as u64;
        // Two lines each; the numbers stay short.
        let rotation = Rotation { bytes_max: 2 * length, kept: 2 };
        let mut file = AuditFile::new(directory.path(), rotation);
        (0..9).for_each(|_| file.append(&record()).unwrap());
        let all = |place| seqs(&path_of(&path, place));
        assert_eq!([all(0), all(1), all(2)], [vec![9], vec![7, 8], vec![5, 6]]);
        assert!(!path_of(&path, 3).exists());
        // A crash between the last rename and the first line of the new file.
        drop(file);
        fs::remove_file(&path).unwrap();
        AuditFile::new(directory.path(), rotation).append(&record()).unwrap();
        assert_eq!(all(0), [9], "after the eighth");
    }

    #[test]
    fn failed_write_is_retried_with_next_line() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let mut file = AuditFile::new(&data, Rotation::default());
        file.append(&record()).unwrap_err();
        fs::create_dir(&data).unwrap();
        file.append(&Record { dropped: 3, ..record() }).unwrap();
        file.append(&record()).unwrap();
        assert_eq!(seqs(&data.join(FILE)), [1, 2]);
        let dropped: Vec<u64> = lines(&data.join(FILE)).iter().filter_map(|line| line["dropped"].as_u64()).collect();
        assert_eq!(dropped, [4, 0], "three before it, and the one that was not written");
    }

    /// `/dev/full` accepts no data, like a full disk.
    #[test]
    fn full_disk_is_an_error_and_no_panic() {
        let mut file = AuditFile::new(Path::new("/"), Rotation::default());
        file.path = "/dev/full".into();
        file.seq = Some(4);
        let full = fs::OpenOptions::new().append(true).open("/dev/full").unwrap();
        file.current = Some(CurrentFile { file: full, length: 0 });
        let error = file.append(&record()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert_eq!(file.seq, Some(4), "the number is the next line's");
    }
}
