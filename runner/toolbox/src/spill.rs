//! Files in the sandbox that hold what did not fit a result, and what background processes print.
//! The folder lies within reach of the agent: every step is opened without following links, and
//! failure costs the file, never the result.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, fstat, mkdirat, open, openat};

/// Largest spill of one call, in bytes.
pub const MAX_CALL_BYTES: u64 = 64 * 1024 * 1024;
/// Largest sum of spills in a sandbox, in bytes.
pub const MAX_SANDBOX_BYTES: u64 = 256 * 1024 * 1024;
/// Largest file of background output, in bytes; it then starts over.
pub const MAX_BACKGROUND_BYTES: u64 = 4 * 1024 * 1024;
const CHECK_EVERY_BYTES: u64 = 1024 * 1024;
const MAX_ENTRIES: usize = 4096;

/// Opens `root/name` as a folder of ours, creating what is missing.
///
/// # Errors
/// When a step is a link, no folder, or may not be created.
pub fn folder(root: &Path, name: &str) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let base = match open(root, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => {
            std::fs::create_dir_all(root)?;
            open(root, flags, Mode::empty())?
        }
        other => other?,
    };
    match mkdirat(&base, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(File::from(openat(&base, name, flags, Mode::empty())?))
}

/// A file name made of an id from outside: harmless characters only, still distinct.
#[must_use]
pub fn file_name(id: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.is_empty() && id.len() <= 100 && id.chars().all(plain) {
        return id.to_owned();
    }
    // FNV-1a keeps names apart that differ only in what is replaced below.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let stem: String = id.chars().take(60).map(|c| if plain(c) { c } else { '_' }).collect();
    format!("{stem}.{hash:016x}")
}

/// A new file below `root/out` that takes bytes up to the limits and then only counts.
#[derive(Debug)]
pub struct Spill {
    file: Option<File>,
    folder: File,
    path: PathBuf,
    written: u64,
    checked: u64,
    allowed: u64,
    cut: bool,
}

impl Spill {
    /// Creates the file; an existing one is never opened.
    ///
    /// # Errors
    /// When the folder is not ours or the file cannot be created.
    pub fn create(root: &Path, name: &str) -> io::Result<Self> {
        let folder = folder(root, "out")?;
        let allowed = room(&folder)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = File::from(openat(&folder, name, flags, Mode::from_raw_mode(0o600))?);
        let path = root.join("out").join(name);
        Ok(Self { file: Some(file), folder, path, written: 0, checked: 0, allowed, cut: false })
    }

    /// Adds bytes as far as the limits allow.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.cut {
            return;
        }
        if self.written - self.checked >= CHECK_EVERY_BYTES {
            self.checked = self.written;
            self.allowed = self.written + room(&self.folder).unwrap_or(0);
        }
        let left = self.allowed.min(MAX_CALL_BYTES).saturating_sub(self.written);
        let fits = bytes.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(bytes);
        let saved = self.file.as_mut().is_some_and(|file| file.write_all(fits).is_ok());
        if saved {
            self.written += fits.len() as u64;
        }
        if !saved || fits.len() < bytes.len() {
            self.cut = true;
            self.file = None;
        }
    }

    /// Where the file is, as the sandbox sees it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether bytes were left out.
    #[must_use]
    pub const fn cut(&self) -> bool {
        self.cut
    }

    /// Bytes saved for certain.
    #[must_use]
    pub const fn written(&self) -> u64 {
        self.written
    }
}

/// Bytes the sandbox may still spill, by what lies in the folder now.
fn room(folder: &File) -> io::Result<u64> {
    let (mut used, mut entries) = (0_u64, 0_usize);
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        entries += 1;
        if entries > MAX_ENTRIES {
            return Ok(0);
        }
        let stat = rustix::fs::statat(folder, entry.file_name(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        used += stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
    }
    // The folder itself is listed as `.` and `..`; their few KiB do not matter.
    Ok(MAX_SANDBOX_BYTES.saturating_sub(used))
}

/// Output of processes that outlive their call: the latest few MiB.
#[derive(Debug)]
pub struct BackgroundLog {
    file: File,
    path: PathBuf,
}

impl BackgroundLog {
    /// Creates the file.
    ///
    /// # Errors
    /// As for [`Spill::create`].
    pub fn create(root: &Path, name: &str) -> io::Result<Self> {
        let spill = Spill::create(root, &format!("{name}.background"))?;
        let file = spill.file.ok_or(io::ErrorKind::StorageFull)?;
        Ok(Self { file, path: spill.path })
    }

    /// Adds output; failures lose it in silence, for nobody waits for it.
    pub fn push(&mut self, bytes: &[u8]) {
        let size = fstat(&self.file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        if size + bytes.len() as u64 > MAX_BACKGROUND_BYTES {
            let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
            if emptied.is_err() || self.file.write_all(b"[earlier output dropped]\n").is_err() {
                return;
            }
        }
        let _lost = self.file.write_all(bytes);
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_cannot_leave_the_folder() {
        assert_eq!(file_name("toolu_01-A"), "toolu_01-A");
        for id in ["../x", "", "a/b", "a b", "..", &"x".repeat(300)] {
            let name = file_name(id);
            assert!(!name.contains('/') && name != ".." && !name.is_empty() && name.len() < 120, "{name}");
        }
        assert_ne!(file_name("a/b"), file_name("a b"));
    }

    #[test]
    fn a_linked_folder_is_refused_and_nothing_is_written_outside() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("out")).unwrap();
        assert!(Spill::create(root.path(), "c").is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_existing_file_or_link_is_never_opened() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("out")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.path().join("out/c")).unwrap();
        assert!(Spill::create(root.path(), "c").is_err());
    }

    #[test]
    fn a_call_stops_saving_at_its_limit() {
        let root = tempfile::tempdir().unwrap();
        let mut spill = Spill::create(root.path(), "c").unwrap();
        let mib = vec![7_u8; 1024 * 1024];
        for _ in 0..66 {
            spill.push(&mib);
        }
        assert!(spill.cut());
        assert_eq!(spill.written(), MAX_CALL_BYTES);
        assert_eq!(std::fs::metadata(spill.path()).unwrap().len(), MAX_CALL_BYTES);
    }

    #[test]
    fn a_full_sandbox_takes_no_more() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("out")).unwrap();
        let full = File::create(root.path().join("out/old")).unwrap();
        full.set_len(MAX_SANDBOX_BYTES).unwrap();
        let mut spill = Spill::create(root.path(), "c").unwrap();
        spill.push(b"x");
        assert!(spill.cut());
    }

    #[test]
    fn a_background_log_keeps_the_latest() {
        let root = tempfile::tempdir().unwrap();
        let mut log = BackgroundLog::create(root.path(), "c").unwrap();
        for _ in 0..6 {
            log.push(&vec![b'a'; 1024 * 1024]);
        }
        log.push(b"last");
        let kept = std::fs::read(log.path()).unwrap();
        assert!(kept.len() as u64 <= MAX_BACKGROUND_BYTES && kept.ends_with(b"last"));
    }
}
