//! The committed inputs, one file each, in a folder per target: real encodings, and inputs that once broke a decoder.

use crate::target::Target;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the folder of all targets.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Returns the folder of one target.
pub fn folder(target: &Target) -> PathBuf {
    root().join(target.name.replace('/', "-"))
}

/// Returns the committed inputs of a target, by file name.
///
/// # Errors
/// If a file cannot be read. A missing folder is empty.
pub fn read(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let entries = match fs::read_dir(folder(target)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push((name, fs::read(&path)?));
    }
    found.sort();
    Ok(found)
}

/// Writes inputs under `name-0`, `name-1`, … and returns their number.
///
/// # Errors
/// If a file cannot be written.
pub fn write(target: &Target, name: &str, inputs: &[Vec<u8>]) -> io::Result<usize> {
    let folder = folder(target);
    fs::create_dir_all(&folder)?;
    for (number, input) in inputs.iter().enumerate() {
        fs::write(folder.join(format!("{name}-{number}")), input)?;
    }
    Ok(inputs.len())
}
