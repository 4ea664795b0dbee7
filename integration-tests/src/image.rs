//! Disks that lose power: an ext4 file system in a file, shut down in the middle of its work.
//!
//! `EXT4_IOC_SHUTDOWN` without flushing the journal leaves what a power failure leaves: synced data is there after the
//! next mount, other data only if it happened to be written back. A drive's own cache is not modelled. Needs root.

use archon_testkit::Random;
use archon_testkit::wait_for;
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Bytes written back at once by [`DiskImage::write_back_some`].
const WRITE_BACK_BYTES: u64 = 64 * 1024;

/// A mounted file system in a file. Dropping it unmounts it and removes the file.
#[derive(Debug)]
pub struct DiskImage {
    file: PathBuf,
    mount: PathBuf,
}

impl DiskImage {
    /// Creates a file system of this size (the file is sparse) and mounts it at `DIRECTORY/NAME`.
    ///
    /// # Errors
    /// The reason why the machine does not allow it; nothing is left behind.
    pub fn create(directory: &Path, name: &str, megabytes: u64) -> Result<Self, String> {
        let image = Self { file: directory.join(format!("{name}.ext4")), mount: directory.join(name) };
        let words = |error: std::io::Error| format!("{}: {error}", image.file.display());
        File::create(&image.file).and_then(|file| file.set_len(megabytes << 20)).map_err(words)?;
        fs::create_dir_all(&image.mount).map_err(words)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image.file))?;
        image.mount()?;
        Ok(image)
    }

    /// Checks that this machine lets a test mount disks.
    ///
    /// # Errors
    /// The reason why not.
    pub fn check_allowed() -> Result<(), String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = Self::create(directory.path(), "probe", 16)?;
        image.cut_power()?;
        image.replace()
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Cuts the power: nothing more reaches the disk, and every use of it fails.
    ///
    /// # Errors
    /// The reason of the system's refusal.
    pub fn cut_power(&self) -> Result<(), String> {
        let words = |error: std::io::Error| format!("cannot cut the power of {}: {error}", self.mount.display());
        let root = File::open(&self.mount).map_err(words)?;
        shutdown::without_flushing(&root).map_err(words)
    }

    /// Remounts it, as after a restart of the machine. Processes with open files must have ended.
    ///
    /// A mount namespace that another process made meanwhile has the disk mounted as well, and keeps the file system
    /// alive: the next mount would be of the one that was shut down, and every access would fail with EIO. So it is
    /// unmounted there, too.
    ///
    /// # Errors
    /// The reason of the system's refusal.
    pub fn replace(&self) -> Result<(), String> {
        let mut is_mounted = true;
        wait_for("a disk to be free", Duration::from_secs(60), || {
            if is_mounted {
                run(Command::new("umount").arg(&self.mount))?;
                is_mounted = false;
            }
            self.unmount_elsewhere()?;
            self.check_detached()
        });
        self.mount()
    }

    /// Unmounts the disk in the mount namespaces of other processes.
    fn unmount_elsewhere(&self) -> Result<(), String> {
        let mount = self.mount.display().to_string();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path()) {
            // Processes may end at any time; kernel threads and other entries have no mounts.
            let Ok(mounts) = fs::read_to_string(process.join("mountinfo")) else { continue };
            if mounts.lines().any(|line| line.split(' ').nth(4) == Some(&mount)) {
                let namespace = format!("--mount={}", process.join("ns/mnt").display());
                run(Command::new("nsenter").arg(namespace).arg("umount").arg(&self.mount))?;
            }
        }
        Ok(())
    }

    /// Checks that no loop device has the file any longer: a mount would use that device again.
    fn check_detached(&self) -> Result<(), String> {
        // The system names files by their real path.
        let file = self.file.canonicalize().map_err(|error| format!("{}: {error}", self.file.display()))?;
        for device in fs::read_dir("/sys/block").into_iter().flatten().flatten().map(|entry| entry.path()) {
            let backing = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
            if Path::new(backing.trim_end()) == file {
                return Err(format!("{} is still attached to {}", self.file.display(), device.display()));
            }
        }
        Ok(())
    }

    /// Makes the system write back a few random pieces of its dirty pages, in no order, as under memory pressure.
    pub fn write_back_some(&self, dice: &mut Random) {
        let mut files = Vec::new();
        list_files(&self.mount, &mut files);
        for _ in 0..4 {
            if files.is_empty() {
                return;
            }
            let Ok(file) = File::open(&files[dice.index(files.len())]) else { continue };
            let pieces = file.metadata().map_or(0, |file| file.len()) / WRITE_BACK_BYTES + 1;
            // Starts writing the dirty pages there without waiting; a refusal changes nothing.
            let _ = fadvise(
                &file,
                dice.below(pieces) * WRITE_BACK_BYTES,
                NonZeroU64::new(WRITE_BACK_BYTES),
                Advice::DontNeed,
            );
        }
    }

    fn mount(&self) -> Result<(), String> {
        run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&self.file).arg(&self.mount))
    }
}

impl Drop for DiskImage {
    fn drop(&mut self) {
        // Lazy unmount: a failing test may leave a process with open files a moment longer. The loop device goes with
        // the mount.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).output();
        let _ = fs::remove_file(&self.file);
    }
}

fn list_files(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            list_files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{:?}: {}", command.get_program(), String::from_utf8_lossy(&output.stderr).trim()))
}

#[allow(unsafe_code)]
mod shutdown {
    use rustix::ioctl::{Setter, ioctl, opcode};
    use std::fs::File;

    /// `EXT4_IOC_SHUTDOWN` of the kernel's `ext4.h`.
    const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);
    /// `EXT4_GOING_FLAGS_NOLOGFLUSH`: zero would flush everything first and prove nothing.
    const WITHOUT_FLUSHING: u32 = 2;

    pub(super) fn without_flushing(root: &File) -> std::io::Result<()> {
        // SAFETY: the operation reads one u32 from the given address and keeps nothing; on other file systems it fails.
        unsafe { ioctl(root, Setter::<SHUTDOWN, u32>::new(WITHOUT_FLUSHING)) }?;
        Ok(())
    }
}
