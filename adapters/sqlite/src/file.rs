//! The file at the path: what it may be, how it is made, and which one it is.
//!
//! Nothing here opens a store file. POSIX takes away all locks that a process has on a file as soon as the process closes
//! any descriptor of it, so one careless `open` would end the exclusion of every other store of this process.

use std::borrow::Cow;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use leasehold::StoreErrorKind;

use crate::error::Failure;

/// Which file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

/// What a file lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// One whose locks hold among the processes of this machine.
    Local(&'static str),
    /// One whose locks cannot be relied on.
    Network(&'static str),
    /// One that leasehold does not know.
    Unknown,
}

/// The path, independent of the current folder.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(is_folder(path));
    }
    std::path::absolute(path).map_err(|error| Failure::io("the path of the store file is unusable", error))
}

/// Sees to it that there is a file that can be a store, and says which one.
///
/// Makes it with mode 0600, and the folders that are missing with mode 0700. What is there already is left as it is.
pub(crate) fn ensure(path: &Path) -> Result<FileId, Failure> {
    refuse_network(path)?;
    if let Some(found) = look(path)? {
        refuse_single_byte(path)?;
        return Ok(found);
    }
    create(path)?;
    look(path)?.ok_or_else(|| {
        misconfigured(
            "the path of the store file is a symbolic link to nothing, or something deletes the file as it is made: \
             choose another path",
        )
    })
}

/// Which file is at the path; nothing if there is none.
pub(crate) fn look(path: &Path) -> Result<Option<FileId>, Failure> {
    let Some(metadata) = metadata(path)? else {
        return Ok(None);
    };
    if metadata.is_dir() {
        return Err(is_folder(path));
    }
    if !metadata.is_file() {
        return Err(misconfigured(
            "the path of the store file is that of a device, pipe or socket: choose another path",
        ));
    }
    Ok(Some(platform::id(&metadata)))
}

/// Owner, rights and type of what is at the path; nothing if there is nothing.
pub(crate) fn metadata(path: &Path) -> Result<Option<Metadata>, Failure> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io("the store file cannot be looked at", error)),
    }
}

/// The permission bits, where there are such.
pub(crate) fn mode(metadata: &Metadata) -> Option<u32> {
    platform::mode(metadata)
}

/// What the path, or the nearest part of it that exists, lies on.
pub(crate) fn file_system(path: &Path) -> FileSystem {
    path.ancestors().find_map(platform::file_system).unwrap_or(FileSystem::Unknown)
}

fn is_folder(path: &Path) -> Failure {
    let inside = path.join("leases.db");
    misconfigured(format!(
        "the path of the store file is that of a folder: name a file in it, such as {inside:?}"
    ))
}

fn refuse_network(path: &Path) -> Result<(), Failure> {
    match file_system(path) {
        FileSystem::Network(name) => Err(misconfigured(format!(
            "the store file would lie on a network file system ({name}), where locks do not hold: use a local disk, or a \
             networked store"
        ))),
        FileSystem::Local(_) | FileSystem::Unknown => Ok(()),
    }
}

/// SQLite takes a file of one byte for an empty one, and would write over it.
fn refuse_single_byte(path: &Path) -> Result<(), Failure> {
    match metadata(path)? {
        Some(metadata) if metadata.len() == 1 => {
            Err(misconfigured("the file is no SQLite database: choose another path, or move the file away"))
        }
        _ => Ok(()),
    }
}

fn misconfigured(message: impl Into<Cow<'static, str>>) -> Failure {
    Failure::not_applied(StoreErrorKind::Misconfigured, message)
}

/// Makes an empty file, unless there is one. Under a name of its own first: at its place nobody may close it.
fn create(path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io("the store file cannot be made", error);
    let folder = path.parent().ok_or_else(|| is_folder(path))?;
    platform::create_folders(folder).map_err(failed)?;
    let mut names = tempfile::Builder::new();
    // tempfile makes files with mode 0600.
    let made = names.prefix(".leasehold-").tempfile_in(folder).map_err(failed)?.into_temp_path();
    match made.persist_noclobber(path) {
        Err(refused) if refused.error.kind() != io::ErrorKind::AlreadyExists => Err(failed(refused.error)),
        _ => Ok(()),
    }
}

/// The kind of file system that a Linux kernel means by this number.
#[cfg_attr(not(any(test, target_os = "linux", target_os = "android")), expect(dead_code))]
fn by_magic(magic: u32) -> FileSystem {
    use FileSystem::{Local, Network, Unknown};
    match magic {
        0x0000_6969 => Network("NFS"),
        0x0000_517b => Network("SMB"),
        0xff53_4d42 => Network("CIFS"),
        0xfe53_4d42 => Network("SMB2"),
        0x0000_564c => Network("NCP"),
        0x5346_414f | 0x6b41_4653 => Network("AFS"),
        0x7375_7245 => Network("Coda"),
        0x00c3_6400 => Network("Ceph"),
        0x0102_1997 => Network("9p"),
        0x0bd0_0bd0 => Network("Lustre"),
        0x4750_4653 => Network("GPFS"),
        0x7461_636f => Network("OCFS2"),
        0x0116_1970 => Network("GFS2"),
        0x1983_0326 => Network("BeeGFS"),
        0x2003_0528 => Network("OrangeFS"),
        0xaad7_aaea => Network("PanFS"),
        0x6163_6673 => Network("ACFS"),
        0xbeef_dead => Network("SNFS"),
        0x786f_4256 => Network("a VirtualBox shared folder"),
        0xbacb_acbc => Network("a VMware shared folder"),
        0x7c7c_6673 => Network("a Parallels shared folder"),
        0x0000_ef53 => Local("ext4"),
        0x5846_5342 => Local("XFS"),
        0x9123_683e => Local("Btrfs"),
        0x2fc1_2fc1 => Local("ZFS"),
        0xf2f5_2010 => Local("F2FS"),
        0xca45_1a4e => Local("bcachefs"),
        0x794c_7630 => Local("overlayfs"),
        0x0102_1994 => Local("tmpfs"),
        0x8584_58f6 => Local("ramfs"),
        0x3153_464a => Local("JFS"),
        0x5265_4973 => Local("ReiserFS"),
        0x0000_f15f => Local("eCryptfs"),
        0x0000_4d44 => Local("FAT"),
        0x2011_bab0 => Local("exFAT"),
        0x5346_544e | 0x7366_746e => Local("NTFS"),
        _ => Unknown,
    }
}

#[cfg(unix)]
mod platform {
    use std::fs::{DirBuilder, Metadata};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    use std::path::Path;

    use super::{FileId, FileSystem};

    pub(super) fn id(metadata: &Metadata) -> FileId {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }

    pub(super) fn mode(metadata: &Metadata) -> Option<u32> {
        Some(metadata.mode() & 0o7777)
    }

    pub(super) fn create_folders(folder: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn file_system(path: &Path) -> Option<FileSystem> {
        // The field's type differs between targets; the numbers have 32 bits on all of them.
        rustix::fs::statfs(path).ok().map(|found| super::by_magic(found.f_type as u32))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn file_system(_path: &Path) -> Option<FileSystem> {
        None
    }
}

// Never reached beyond `open`, which finds no boot id there.
#[cfg(not(unix))]
mod platform {
    use std::fs::{self, Metadata};
    use std::io;
    use std::path::Path;

    use super::{FileId, FileSystem};

    pub(super) fn id(_metadata: &Metadata) -> FileId {
        FileId { device: 0, inode: 0 }
    }

    pub(super) fn mode(_metadata: &Metadata) -> Option<u32> {
        None
    }

    pub(super) fn create_folders(folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    pub(super) fn file_system(_path: &Path) -> Option<FileSystem> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_numbers() {
        for (magic, name) in [
            (0x6969, "NFS"),
            (0x517b, "SMB"),
            (0xff53_4d42, "CIFS"),
            (0xfe53_4d42, "SMB2"),
            (0x5346_414f, "AFS"),
            (0x7375_7245, "Coda"),
            (0x00c3_6400, "Ceph"),
            (0x0102_1997, "9p"),
            (0x0bd0_0bd0, "Lustre"),
            (0x4750_4653, "GPFS"),
            (0x7461_636f, "OCFS2"),
            (0x0116_1970, "GFS2"),
        ] {
            assert_eq!(by_magic(magic), FileSystem::Network(name));
        }
        assert_eq!(by_magic(0xef53), FileSystem::Local("ext4"));
        // FUSE may be anything; neither refused nor vouched for.
        assert_eq!(by_magic(0x6573_5546), FileSystem::Unknown);
    }

    #[test]
    fn a_file_is_made_once_and_keeps_its_identity() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a").join("b").join("leases.db");
        let first = ensure(&path).unwrap();
        assert_eq!(ensure(&path).unwrap(), first);
        create(&path).unwrap();
        assert_eq!(look(&path).unwrap(), Some(first), "the one that is there stays");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }
}
