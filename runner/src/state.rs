//! The runner's directory: private, admitting one daemon, and never holding half a file.
//! It follows no symbolic link and reads nothing that others may have written.

use rustix::fs::{Mode, OFlags};
use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refuses.
    #[error("{path} cannot be used: {cause}", path = path.display())]
    Io {
        /// Which path.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Something else is where a plain file or directory should be.
    #[error("{path} is not a plain {wanted}; it is not touched", path = path.display())]
    Kind {
        /// Which path.
        path: PathBuf,
        /// `file` or `directory`.
        wanted: &'static str,
    },
    /// Another user owns it.
    #[error("{path} belongs to user {owner}, not to the one the runner runs as", path = path.display())]
    Owner {
        /// Which path.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others may read or write it.
    #[error("{path} has mode {mode:04o}, others can read it; if nobody did, run: chmod 600 {path}", path = path.display())]
    Exposed {
        /// Which path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another daemon holds the lock.
    #[error("another runner already uses {path}; give each its own --state-dir", path = path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
}

/// A private directory.
#[derive(Debug, Clone)]
pub struct State {
    path: PathBuf,
}

/// Held for as long as this process may change the directory.
#[derive(Debug)]
pub struct Lock {
    #[expect(dead_code, reason = "the lock lasts as long as the open file")]
    file: File,
}

/// The steps of replacing a file, each of which a crash may precede.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Fill,
    Sync,
    Rename,
    SyncDirectory,
}

impl State {
    /// Opens the directory, made with mode 0700 when it is absent.
    ///
    /// # Errors
    /// [`Error`] when it is no directory of this user.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let at = |cause| Error::Io { path: path.to_owned(), cause };
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Ok(()) => {}
            // A file or a dangling link in its place is named below.
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            Err(cause) => return Err(at(cause)),
        }
        let found = fs::symlink_metadata(path).map_err(at)?;
        if !found.is_dir() {
            return Err(Error::Kind { path: path.to_owned(), wanted: "directory" });
        }
        let own = rustix::process::geteuid().as_raw();
        if found.uid() != own {
            return Err(Error::Owner { path: path.to_owned(), owner: found.uid() });
        }
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(at)?;
        }
        Ok(Self { path: path.to_owned() })
    }

    /// The path of something in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Admits one process. The lock ends with the process, however it ends.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process has it.
    pub fn lock(&self) -> Result<Lock, Error> {
        let file = self.open_at("lock", OFlags::RDWR | OFlags::CREATE)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { file }),
            Err(fs::TryLockError::WouldBlock) => Err(Error::Locked { path: self.path.clone() }),
            Err(fs::TryLockError::Error(cause)) => Err(Error::Io { path: self.join("lock"), cause }),
        }
    }

    /// Whether a process holds the lock now.
    ///
    /// # Errors
    /// [`Error`] when the lock file cannot be looked at.
    pub fn is_locked(&self) -> Result<bool, Error> {
        match self.lock() {
            Ok(_) => Ok(false),
            Err(Error::Locked { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The content of a private file; `None` when there is none.
    ///
    /// # Errors
    /// [`Error`] when it is no plain file of this user alone.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.join(name);
        let file = match self.open_at(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = file.metadata().map_err(|cause| Error::Io { path: path.clone(), cause })?;
        if !found.is_file() {
            return Err(Error::Kind { path, wanted: "file" });
        }
        let own = rustix::process::geteuid().as_raw();
        if found.uid() != own {
            return Err(Error::Owner { path, owner: found.uid() });
        }
        if found.mode() & 0o077 != 0 {
            return Err(Error::Exposed { path, mode: found.mode() & 0o7777 });
        }
        let mut content = Vec::new();
        file.take(FILE_BYTES_MAX)
            .read_to_end(&mut content)
            .map_err(|cause| Error::Io { path: path.clone(), cause })?;
        Ok(Some(content))
    }

    /// Replaces a file so that a crash leaves the old content or the new one; mode 0600.
    ///
    /// # Errors
    /// [`Error`] when a step fails; the old content is still there then.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        self.write_watched(name, content, |_| Ok(()))
    }

    /// [`Self::write`], asking `before` at each step; its error is the crash of a test.
    pub(crate) fn write_watched(
        &self,
        name: &str,
        content: &[u8],
        before: impl Fn(Step) -> io::Result<()>,
    ) -> Result<(), Error> {
        let path = self.join(name);
        let temporary = format!("{name}.new");
        let at = |cause| Error::Io { path: path.clone(), cause };
        before(Step::Create).map_err(at)?;
        // What a crash left under this name is worthless; a link planted there must not be followed.
        match fs::remove_file(self.join(&temporary)) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(at(cause)),
            _ => {}
        }
        let mut file = self.open_at(&temporary, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        before(Step::Fill).map_err(at)?;
        file.write_all(content).map_err(at)?;
        before(Step::Sync).map_err(at)?;
        file.sync_all().map_err(at)?;
        before(Step::Rename).map_err(at)?;
        fs::rename(self.join(&temporary), &path).map_err(at)?;
        before(Step::SyncDirectory).map_err(at)?;
        sync_directory(&self.path).map_err(at)
    }

    /// Removes a file; that it is absent already is success.
    ///
    /// # Errors
    /// [`Error::Io`] when it is still there.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.join(name);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(Error::Io { path, cause }),
            _ => sync_directory(&self.path).map_err(|cause| Error::Io { path: self.path.clone(), cause }),
        }
    }

    /// Removes everything that a runner keeps here, the lock last; what is not ours stays.
    ///
    /// # Errors
    /// [`Error::Io`] for the first thing that stays.
    pub fn empty(&self) -> Result<(), Error> {
        for name in ["spool", "aside", "sandbox"] {
            match fs::remove_dir_all(self.join(name)) {
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Io { path: self.join(name), cause });
                }
                _ => {}
            }
        }
        // The identity goes before what may be needed to try again.
        for name in
            ["identity.json", "pairing-key", "status.json", "draining", "drained", "control.sock", "lock"]
        {
            self.remove(name)?;
        }
        Ok(())
    }

    fn open_at(&self, name: &str, flags: OFlags) -> Result<File, Error> {
        let path = self.join(name);
        // Non-blocking, so that a pipe planted in a file's place cannot hold us up.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => Ok(File::from(fd)),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::ISDIR | rustix::io::Errno::NXIO) => {
                Err(Error::Kind { path, wanted: "file" })
            }
            Err(errno) => Err(Error::Io { path, cause: errno.into() }),
        }
    }
}

/// Makes entries of a directory durable.
///
/// # Errors
/// What the system says.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, State) {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(&dir.path().join("state")).unwrap();
        (dir, state)
    }

    #[test]
    fn a_crash_at_any_step_leaves_the_old_content_or_the_new_one() {
        let steps = [Step::Create, Step::Fill, Step::Sync, Step::Rename, Step::SyncDirectory];
        for crash in steps {
            let (_dir, state) = state();
            state.write("identity", b"old").unwrap();
            let crashed = state.write_watched("identity", b"new, and longer", |step| {
                if step == crash { Err(io::Error::other("crash")) } else { Ok(()) }
            });
            assert!(crashed.is_err());
            let expected: &[u8] = if crash == Step::SyncDirectory { b"new, and longer" } else { b"old" };
            assert_eq!(state.read("identity").unwrap().as_deref(), Some(expected), "at {crash:?}");
            state.write("identity", b"next").unwrap();
            assert_eq!(state.read("identity").unwrap().as_deref(), Some(&b"next"[..]), "after {crash:?}");
        }
    }

    #[test]
    fn files_and_directory_are_for_this_user_alone() {
        let (_dir, state) = state();
        state.write("identity", b"x").unwrap();
        assert_eq!(fs::metadata(state.path()).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::metadata(state.join("identity")).unwrap().mode() & 0o7777, 0o600);
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).unwrap();
        State::open(state.path()).unwrap();
        assert_eq!(fs::metadata(state.path()).unwrap().mode() & 0o7777, 0o700);
        fs::set_permissions(state.join("identity"), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(state.read("identity"), Err(Error::Exposed { mode: 0o640, .. })));
    }

    #[test]
    fn links_directories_and_pipes_in_place_of_a_file_are_refused_not_followed() {
        let (dir, state) = state();
        let target = dir.path().join("elsewhere");
        fs::write(&target, "untouched").unwrap();
        std::os::unix::fs::symlink(&target, state.join("a")).unwrap();
        fs::create_dir(state.join("b")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            state.join("c"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        for name in ["a", "b", "c"] {
            assert!(matches!(state.read(name), Err(Error::Kind { .. })), "{name}");
        }
        std::os::unix::fs::symlink(&target, state.join("d.new")).unwrap();
        state.write("d", b"mine").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"untouched");
        assert_eq!(state.read("d").unwrap().as_deref(), Some(&b"mine"[..]));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(state.path(), &link).unwrap();
        assert!(matches!(State::open(&link), Err(Error::Kind { .. })));
    }

    #[test]
    fn emptying_leaves_nothing_of_ours_and_everything_else() {
        let (_dir, state) = state();
        let lock = state.lock().unwrap();
        for name in ["identity.json", "drained", "spool/x", "sandbox/y/z", "theirs"] {
            let path = state.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        state.empty().unwrap();
        drop(lock);
        let left = fs::read_dir(state.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["theirs"]);
    }

    #[test]
    fn one_directory_admits_one_daemon_until_it_is_gone() {
        let (_dir, state) = state();
        let lock = state.lock().unwrap();
        assert!(matches!(state.lock(), Err(Error::Locked { .. })));
        assert!(state.is_locked().unwrap());
        drop(lock);
        assert!(!state.is_locked().unwrap());
    }
}
