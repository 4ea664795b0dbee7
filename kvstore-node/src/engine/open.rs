//! Opening of an engine's directory: checks its format, and sets aside one that does not open.

use super::{Engine, EngineError, EngineKind, LsmEngine, SledEngine};
use rustix::fs::{Advice, fadvise};
use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Names the engine and its format, so that another engine or a newer version is not mistaken for damage.
const FORMAT_FILE: &str = "archon-engine";
const MAGIC: &str = "archon-engine";
/// Exists from an orderly end to the next start. It need not survive a power loss, since the page cache does not
/// either.
const CLEAN_FILE: &str = "archon-engine.clean";
/// The format of each engine's rows. Both began with 1, which had a row per outcome of a client; 2 had no values that
/// expire, and 3 no outcomes of transactions.
const FORMAT: u32 = 4;
/// Most directories set aside beside each other before the operator must intervene.
const QUARANTINES_MAX: u32 = 1_000;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The engine; `None` is the one that created the directory, or the default in a new one. A directory belongs to
    /// its creator.
    pub kind: Option<EngineKind>,
    /// Memory for cached pages, in bytes. At least 1 MiB is sensible.
    pub cache_bytes: u64,
    /// Time to wait while another user holds the engine. A closed engine of the same process releases it a little
    /// later, from a thread of its own.
    pub lock_wait: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { kind: None, cache_bytes: 128 * 1024 * 1024, lock_wait: Duration::from_secs(5) }
    }
}

/// Opens the engine in `directory`, creating it if it is missing. A damaged one is renamed to `DIRECTORY.quarantined-N`
/// beside it, never deleted, and replaced by an empty one: the second value then names the renamed directory, and every
/// replica that was in it must be reloaded.
///
/// # Errors
/// [`EngineError::Io`] if the operating system refuses (nothing is set aside for that), [`EngineError::NewerFormat`]
/// or [`EngineError::OlderFormat`] for another version's directory and [`EngineError::OtherEngine`] or
/// [`EngineError::UnknownEngine`] for another engine's, none of which is touched, and [`EngineError::NotDurable`] if syncs would not be real.
pub fn open_or_quarantine(
    directory: &Path,
    config: &EngineConfig,
) -> Result<(Arc<dyn Engine>, Option<PathBuf>), EngineError> {
    match open(directory, config) {
        Ok(engine) => Ok((engine, None)),
        Err(error) if error.is_damage() => {
            let aside = set_aside(directory)?;
            tracing::error!(directory = %directory.display(), aside = %aside.display(), %error, "engine set aside");
            Ok((open(directory, config)?, Some(aside)))
        }
        Err(error) => Err(error),
    }
}

fn open(directory: &Path, config: &EngineConfig) -> Result<Arc<dyn Engine>, EngineError> {
    let kind = prepare(directory, config.kind)?;
    let fail = |source| EngineError::Io { directory: directory.to_owned(), what: "look at its files", source };
    begin_use(directory).map_err(fail)?;
    let engine: Arc<dyn Engine> = match kind {
        EngineKind::Sled => Arc::new(SledEngine::open(directory, config)?),
        EngineKind::Lsm => Arc::new(LsmEngine::open(directory, config)?),
    };
    let fail = |source| EngineError::Io { directory: directory.to_owned(), what: "sync its files", source };
    sync_files(directory).map_err(fail)?;
    Ok(engine)
}

/// Makes sure that the directory exists and is this engine's, if one is requested. Returns its engine.
pub(super) fn prepare(directory: &Path, wanted: Option<EngineKind>) -> Result<EngineKind, EngineError> {
    let fail = |what| move |source| EngineError::Io { directory: directory.to_owned(), what, source };
    archon_durable::create_directory(directory).map_err(fail("create its directory"))?;
    let empty = fs::read_dir(directory).map_err(fail("list its directory"))?.next().is_none();
    if !empty {
        return check_format(directory, wanted);
    }
    let kind = wanted.unwrap_or_default();
    write_format(directory, kind).map_err(fail("write its format"))?;
    Ok(kind)
}

/// Notes that the engine was synced and closed, so that the next start may trust the page cache.
///
/// # Errors
/// The errors of the file system.
pub(crate) fn note_clean_end(directory: &Path) -> io::Result<()> {
    File::create(directory.join(CLEAN_FILE)).map(drop)
}

/// Drops the page cache of the engine's files, unless it ended in order. After a failed sync the kernel may treat pages
/// as clean that the disk lacks: the engine would build on them, later syncs would not write them, and the log would be
/// trimmed by them. Reads from the disk show the loss instead, while the log still has the rows.
fn begin_use(directory: &Path) -> io::Result<()> {
    match fs::remove_file(directory.join(CLEAN_FILE)) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => forget_cached(directory),
        Err(error) => Err(error),
    }
}

fn forget_cached(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        match forget_file(&path) {
            // The previous engine may still remove files.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            forgotten => forgotten?,
        }
    }
    Ok(())
}

fn forget_file(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        return forget_cached(path);
    }
    if let Err(error) = fadvise(File::open(path)?, 0, None, Advice::DontNeed) {
        tracing::debug!(%error, path = %path.display(), "the system keeps its copy of a file of the engine");
    }
    Ok(())
}

/// Makes the files themselves and their names survive a power loss: sled creates its configuration without a sync.
fn sync_files(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match File::open(entry.path()) {
            Ok(file) => file.sync_all()?,
            // A snapshot that was replaced meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    archon_durable::sync_directory(directory)
}

fn write_format(directory: &Path, kind: EngineKind) -> std::io::Result<()> {
    archon_durable::replace(&directory.join(FORMAT_FILE), format!("{MAGIC} {kind} {FORMAT}\n").as_bytes())
}

fn check_format(directory: &Path, wanted: Option<EngineKind>) -> Result<EngineKind, EngineError> {
    let damaged = |what: String| EngineError::Damaged { directory: directory.to_owned(), what };
    let path = directory.join(FORMAT_FILE);
    let text = match fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(source) if source.kind() == ErrorKind::NotFound => {
            return Err(damaged(format!("the file {FORMAT_FILE} is missing")));
        }
        Err(source) => {
            return Err(EngineError::Io { directory: directory.to_owned(), what: "read its format", source });
        }
    };
    let named = text.strip_prefix(MAGIC).and_then(|named| named.trim().split_once(' '));
    let named = named.and_then(|(kind, format)| Some((kind, format.parse::<u32>().ok()?)));
    let Some((kind, found)) = named.filter(|(kind, _)| kind.bytes().all(|byte| byte.is_ascii_lowercase())) else {
        return Err(damaged(format!("the file {FORMAT_FILE} does not name an engine and its format")));
    };
    let Ok(kind) = kind.parse::<EngineKind>() else {
        return Err(EngineError::UnknownEngine { directory: directory.to_owned(), found: kind.to_owned() });
    };
    if let Some(wanted) = wanted.filter(|wanted| *wanted != kind) {
        let (found, wanted) = (kind.name(), wanted.name());
        return Err(EngineError::OtherEngine { directory: directory.to_owned(), found, wanted });
    }
    let (directory, known) = (directory.to_owned(), FORMAT);
    match found.cmp(&FORMAT) {
        Ordering::Greater => Err(EngineError::NewerFormat { directory, found, known }),
        Ordering::Less => Err(EngineError::OlderFormat { directory, found, known }),
        Ordering::Equal => Ok(kind),
    }
}

fn set_aside(directory: &Path) -> Result<PathBuf, EngineError> {
    let fail = |source| EngineError::Io { directory: directory.to_owned(), what: "set its directory aside", source };
    let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for number in 1..=QUARANTINES_MAX {
        let aside = directory.with_file_name(format!("{name}.quarantined-{number}"));
        if aside.try_exists().map_err(fail)? {
            continue;
        }
        archon_durable::rename(directory, &aside).map_err(fail)?;
        return Ok(aside);
    }
    Err(fail(std::io::Error::other(format!("{QUARANTINES_MAX} are set aside already; inspect them and remove some"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::statfs;
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    use std::io::IoSliceMut;

    const TMPFS: i64 = 0x0102_1994;

    /// Returns whether the page cache holds the beginning of a file; `None` if the system does not support the question.
    fn is_cached(path: &Path) -> Option<bool> {
        let (file, mut byte) = (File::open(path).unwrap(), [0]);
        match preadv2(&file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT) {
            Ok(_) => Some(true),
            Err(Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    }

    #[test]
    fn page_cache_is_dropped_unless_engine_ended_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let nested = directory.path().join("tables");
        fs::create_dir(&nested).unwrap();
        let files = [directory.path().join("db"), nested.join("1")];
        for path in &files {
            fs::write(path, vec![7; 64 * 1024]).unwrap();
            File::open(path).unwrap().sync_all().unwrap();
        }
        let all_cached = || files.iter().map(|path| is_cached(path)).collect::<Option<Vec<bool>>>();
        let is_memory = statfs(directory.path()).is_ok_and(|found| found.f_type == TMPFS);
        if is_memory || all_cached().is_none() {
            return; // a file system without a page cache that can be dropped or examined
        }
        note_clean_end(directory.path()).unwrap();
        begin_use(directory.path()).unwrap();
        assert_eq!(all_cached(), Some(vec![true, true]), "it ended in order");
        begin_use(directory.path()).unwrap();
        assert_eq!(all_cached(), Some(vec![false, false]), "it did not end since it was begun");
    }
}
