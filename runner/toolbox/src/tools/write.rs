//! `write`: a whole file, put in place at once.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Answer, Context, place, seen, text};
use crate::call::Write;

pub(super) fn run(input: &Write, context: &Context<'_>) -> Answer {
    let path = place::resolve(&input.file_path, &context.workspace);
    if input.file_path.is_empty() || input.file_path.ends_with('/') {
        return Err(format!("{:?} names no file; give the path of a file", input.file_path));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| {
            format!("the folder {} cannot be created: {error}; write somewhere else", folder.display())
        })?;
    }
    let real = replace(&path, input.content.as_bytes())?;
    context.seen.note(context.thread, &real, seen::digest(input.content.as_bytes()));
    text(format!("wrote {} bytes to {}", input.content.len(), path.display()))
}

/// Puts `content` in place of the file `path` leads to, links followed, and returns that file.
/// Readers see the old or the new content, never a part.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", path.display());
    let target = destination(path).map_err(failed)?;
    let old = match fs::metadata(&target) {
        Ok(found) if found.is_dir() => {
            return Err(format!("{} is a folder; give the path of a file", path.display()));
        }
        Ok(found) if !found.is_file() => {
            return Err(format!("{} is no regular file and is not replaced", path.display()));
        }
        found => found.ok(),
    };
    let temporary = beside(&target);
    let written = put(&temporary, content, old.map(|old| old.permissions().mode() & 0o7777))
        .and_then(|()| fs::rename(&temporary, &target));
    if let Err(error) = written {
        let _absent = fs::remove_file(&temporary);
        return Err(failed(error));
    }
    Ok(target.canonicalize().unwrap_or(target))
}

fn put(temporary: &Path, content: &[u8], mode: Option<u32>) -> std::io::Result<()> {
    let mut file =
        File::options().write(true).create_new(true).mode(mode.unwrap_or(0o666) & 0o777).open(temporary)?;
    file.write_all(content)?;
    if let Some(mode) = mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Follows links by hand, so that one that dangles is written through as a shell would.
fn destination(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..40 {
        let Ok(link) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or_else(|| Path::new("/")).join(link);
    }
    Err(std::io::Error::other("too many symbolic links"))
}

fn beside(target: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    target.with_file_name(format!(".checkfu-{}-{number}.tmp", std::process::id()))
}
