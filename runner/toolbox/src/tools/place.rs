//! Paths and files as tools see them: where a path leads, and opening without being trapped.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// A path from the model, relative ones taken from the workspace.
pub(super) fn resolve(path: &str, workspace: &Path) -> PathBuf {
    workspace.join(path)
}

/// Opens a regular file for reading without ever waiting for anybody.
pub(super) fn open_regular(path: &Path) -> Result<File, String> {
    let shown = path.display();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(error) => return Err(explain(path, error)),
    };
    let found = file.metadata().map_err(|error| format!("{shown} cannot be examined: {error}"))?;
    if found.is_dir() {
        return Err(format!("{shown} is a folder; list it with glob or `ls`"));
    }
    if !found.is_file() {
        return Err(format!("{shown} is no regular file (a pipe, socket or device); it cannot be used here"));
    }
    Ok(file)
}

fn explain(path: &Path, error: Errno) -> String {
    let shown = path.display();
    match error {
        Errno::NOENT => format!("{shown} does not exist; look for it with glob"),
        Errno::ACCESS | Errno::PERM => format!("{shown} may not be opened: permission denied"),
        Errno::LOOP => format!("{shown} is a loop of symbolic links"),
        Errno::NXIO | Errno::NODEV => {
            format!("{shown} is no regular file (a pipe, socket or device); it cannot be used here")
        }
        Errno::NOTDIR => format!("{shown} does not exist: a part of the path is no folder"),
        other => format!("{shown} cannot be opened: {other}"),
    }
}

/// Reads a file that must not be longer than `max_bytes`.
pub(super) fn read_all(file: &File, path: &Path, max_bytes: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    if bytes.len() as u64 > max_bytes {
        return Err(format!(
            "{} is longer than {} MiB, too long for this tool; work on it with bash (head, sed, grep)",
            path.display(),
            max_bytes >> 20
        ));
    }
    Ok(bytes)
}
