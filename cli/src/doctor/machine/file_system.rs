//! Kind of file system of a directory.

use crate::documents::{Finding, FindingCode};
use std::path::Path;

/// Storage of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Disk of this machine, real or virtual.
    Disk,
    /// Memory.
    Memory,
    /// Another machine.
    Network,
    /// Layer of a container.
    Layer,
    /// Program in user space.
    UserSpace,
    /// Driver for disks of other systems.
    Foreign,
}

/// Observation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FileSystemState {
    /// A file system known to this program.
    Known(&'static str, Kind),
    /// Another one, by its number.
    Other(u32),
    /// Unknown, with the reason.
    Unknown(String),
}

/// Numbers of `statfs(2)`.
const KNOWN: &[(u32, &str, Kind)] = &[
    (0xEF53, "ext4", Kind::Disk),
    (0x5846_5342, "xfs", Kind::Disk),
    (0x9123_683E, "btrfs", Kind::Disk),
    (0xF2F5_2010, "f2fs", Kind::Disk),
    (0x2FC1_2FC1, "zfs", Kind::Disk),
    (0xCA45_1A4E, "bcachefs", Kind::Disk),
    (0x0102_1994, "tmpfs", Kind::Memory),
    (0x8584_58F6, "ramfs", Kind::Memory),
    (0x794C_7630, "overlayfs", Kind::Layer),
    (0x6175_6673, "aufs", Kind::Layer),
    (0x6969, "nfs", Kind::Network),
    (0x517B, "smbfs", Kind::Network),
    (0xFF53_4D42, "cifs", Kind::Network),
    (0xFE53_4D42, "smb2", Kind::Network),
    (0x0102_1997, "9p", Kind::Network),
    (0x00C3_6400, "ceph", Kind::Network),
    (0x0BD0_0BD0, "lustre", Kind::Network),
    (0x0116_1970, "gfs2", Kind::Network),
    (0x7461_636F, "ocfs2", Kind::Network),
    (0x5346_414F, "afs", Kind::Network),
    (0x6573_5546, "fuse", Kind::UserSpace),
    (0x786F_4256, "vboxsf", Kind::UserSpace),
    (0x4D44, "vfat", Kind::Foreign),
    (0x2011_BAB0, "exfat", Kind::Foreign),
    (0x5346_544E, "ntfs", Kind::Foreign),
];

/// Returns the file system of a directory.
pub(super) fn read(place: &Path) -> FileSystemState {
    #[cfg(target_os = "linux")]
    {
        // The type of the numbers differs between machines; 32 bits are significant.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        match rustix::fs::statfs(place) {
            Ok(told) => of(told.f_type as u32),
            Err(error) => FileSystemState::Unknown(error.to_string()),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = place;
        FileSystemState::Unknown("checked on Linux only".to_owned())
    }
}

fn of(number: u32) -> FileSystemState {
    let known = KNOWN.iter().find(|(known, ..)| *known == number);
    known.map_or(FileSystemState::Other(number), |(_, name, kind)| FileSystemState::Known(name, *kind))
}

/// Judges the file system.
pub(super) fn judge(about: &str, reading: &FileSystemState) -> Finding {
    const CODE: FindingCode = FindingCode::FileSystem;
    let (name, kind) = match reading {
        FileSystemState::Known(name, kind) => (name, kind),
        FileSystemState::Other(number) => {
            let message = format!("file system {number:#x} is unknown: check that it keeps synced data");
            return Finding::not_checked(CODE, about, message);
        }
        FileSystemState::Unknown(why) => {
            return Finding::not_checked(CODE, about, format!("type of file system: {why}"));
        }
    };
    let disk = "give a directory on a local disk with --data-dir";
    match kind {
        Kind::Disk => Finding::ok(CODE, about, *name),
        Kind::Memory => {
            let message =
                format!("{name} is in memory: a restart of the machine loses all data, including acknowledged writes");
            Finding::error(CODE, about, message, disk)
        }
        Kind::Network => {
            let message = format!(
                "{name} is a network file system: correctness and latency of its locks and syncs depend on the server \
                 and the network"
            );
            Finding::warning(CODE, about, message, disk)
        }
        Kind::Layer => {
            let message = format!("{name} is the layer of a container, and is deleted with it");
            Finding::warning(CODE, about, message, "mount a volume there, as packaging/docker/compose.yaml does")
        }
        Kind::UserSpace => Finding::warning(
            CODE,
            about,
            format!("{name}: the program behind it determines whether a sync is durable"),
            disk,
        ),
        Kind::Foreign => {
            Finding::warning(CODE, about, format!("{name} does not support owners and private files"), disk)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    #[test]
    fn memory_is_an_error_and_remote_storage_a_warning() {
        let judged = |number| judge("/data", &of(number)).verdict;
        assert_eq!((judged(0xEF53), judged(0x0102_1994)), (Verdict::Ok, Verdict::Error));
        for number in [0x6969, 0xFF53_4D42, 0x794C_7630, 0x6573_5546, 0x4D44] {
            assert_eq!(judged(number), Verdict::Warning, "{number:#x}");
        }
        assert_eq!(judged(1), Verdict::NotChecked);
        assert!(judge("/data", &of(0x794C_7630)).message.contains("overlayfs is the layer of a container"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn proc_is_rejected_for_data() {
        assert_eq!(read(Path::new("/proc")), FileSystemState::Other(0x9fa0));
        assert!(matches!(read(Path::new("/proc/not-there")), FileSystemState::Unknown(_)));
    }
}
