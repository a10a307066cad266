//! The runner's own copies of captured files: named by us, digested while written, durable before they count.

use ring::digest;
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// A directory for the files of one capture.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    next: u32,
}

/// A file that is complete and durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) path: PathBuf,
    pub(super) sha256: String,
}

/// A file that is being written; dropped before its end, it is removed.
pub(super) struct Writing {
    file: File,
    path: PathBuf,
    digest: digest::Context,
    kept: bool,
}

impl Spool {
    /// Makes the directory, or empties the one of an attempt before.
    pub(super) fn prepare(directory: &Path) -> io::Result<Self> {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.to_owned(), next: 0 })
    }

    fn fresh(&mut self) -> PathBuf {
        self.next += 1;
        self.directory.join(format!("{:06}", self.next))
    }

    pub(super) fn write(&mut self) -> io::Result<Writing> {
        let path = self.fresh();
        let file = File::options().write(true).create_new(true).open(&path)?;
        Ok(Writing { file, path, digest: digest::Context::new(&digest::SHA256), kept: false })
    }

    /// A second name for the same content, for a link within the outputs.
    pub(super) fn again(&mut self, stored: &Stored) -> io::Result<Stored> {
        let path = self.fresh();
        fs::hard_link(&stored.path, &path)?;
        Ok(Stored { path, sha256: stored.sha256.clone() })
    }

    /// Makes the names durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

impl Writing {
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.file.write_all(bytes)
    }

    pub(super) fn finish(mut self) -> io::Result<Stored> {
        self.file.sync_all()?;
        self.kept = true;
        let digest = self.digest.clone().finish();
        let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Stored { path: self.path.clone(), sha256 })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "a spool file stayed");
        }
    }
}
