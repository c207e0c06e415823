//! What will hurt one day, looked for without writing.

use leasehold::{Finding, Severity};
use rusqlite::Connection;

use crate::database::{Database, Patience};
use crate::error::Failure;
use crate::file::{self, FileSystem};

/// Looks at the file, its rights, its disk and its settings.
pub(crate) fn findings(database: &mut Database, patience: &Patience) -> Result<Vec<Finding>, Failure> {
    let path = database.path().to_owned();
    let mut found = Vec::new();
    match file::file_system(&path) {
        FileSystem::Local("tmpfs" | "ramfs") => found.push(Finding::new(
            Severity::Info,
            "the store file lies in memory and is gone after a reboot",
            "choose a path on a disk if sealed keys, or counted tokens, are to outlive a reboot",
        )),
        FileSystem::Local(_) => {}
        FileSystem::Network(name) => found.push(Finding::new(
            Severity::Error,
            format!("the store file lies on a network file system ({name}), where locks do not hold"),
            "move it to a local disk, or use a networked store",
        )),
        FileSystem::Unknown => found.push(Finding::new(
            Severity::Info,
            "the kind of file system under the store file is not known to leasehold",
            "make sure that it is a local disk, and that its locks hold among the processes that use the file",
        )),
    }
    rights(&path, &mut found)?;
    let settings = database.read(patience, |connection| Ok(settings(connection)?))?;
    found.extend(settings.unwrap_or_else(|| {
        vec![Finding::new(
            Severity::Warning,
            "the store file is gone; whoever holds a lease loses it at the next renewal, and the next acquire makes a new file",
            "find out what deletes the file",
        )]
    }));
    Ok(found)
}

fn rights(path: &std::path::Path, found: &mut Vec<Finding>) -> Result<(), Failure> {
    let mode = file::metadata(path)?.and_then(|metadata| file::mode(&metadata)).unwrap_or_default();
    if mode & 0o022 != 0 {
        found.push(Finding::new(
            Severity::Warning,
            format!(
                "other users may write to the store file (mode {mode:04o}), and so take or end any lease"
            ),
            format!("chmod 600 {path:?}, unless those users are meant to hold leases too"),
        ));
    } else if mode & 0o044 != 0 {
        found.push(Finding::new(
            Severity::Warning,
            format!(
                "other users may read the store file (mode {mode:04o}), and with it the nonces of all grants"
            ),
            format!("chmod 600 {path:?}"),
        ));
    }
    let Some(folder) = path.parent() else { return Ok(()) };
    let mode = file::metadata(folder)?.and_then(|metadata| file::mode(&metadata)).unwrap_or_default();
    // In a folder with the sticky bit others cannot remove the file.
    if mode & 0o022 != 0 && mode & 0o1000 == 0 {
        found.push(Finding::new(
            Severity::Warning,
            format!("other users may delete or replace files in the store's folder (mode {mode:04o})"),
            format!("chmod 700 {folder:?}, or keep the store file in a folder of its own"),
        ));
    }
    Ok(())
}

fn settings(connection: &Connection) -> rusqlite::Result<Vec<Finding>> {
    let mut found = Vec::new();
    let integrity: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if integrity != "ok" {
        found.push(Finding::new(
            Severity::Error,
            format!("the store file is damaged: {}", integrity.replace('\n', " ")),
            "stop everything that uses the file and move it away; a new one is made by the next use",
        ));
    }
    // Only after a read does the connection know a mode that somebody else has set.
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if mode != "truncate" || synchronous < 2 {
        found.push(Finding::new(
            Severity::Warning,
            format!(
                "the store file is written in journal mode {mode:?} with synchronous = {synchronous}: a grant may not \
                 outlive the loss of power"
            ),
            "stop what else uses the file; leasehold sets journal mode \"truncate\" and synchronous = 2 when it opens it",
        ));
    }
    Ok(found)
}
