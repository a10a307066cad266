//! Custody of captured files: bytes arrive in staging, are proven, and move under a name of our own. A path of a session is
//! never a path of this machine.

use crate::record::FileRecord;
use checkfu_shared::{
    id::{SessionId, UploadId},
    protocol::append::hex,
};
use ring::digest;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The two directories of custody.
#[derive(Debug, Clone)]
pub struct Files {
    kept: PathBuf,
    staging: PathBuf,
}

impl Files {
    /// Custody below this data directory; makes what is missing.
    ///
    /// # Errors
    /// When the directories cannot be made.
    pub fn at(data_dir: &Path) -> io::Result<Self> {
        let files = Self { kept: data_dir.join("files"), staging: data_dir.join("staging") };
        fs::create_dir_all(&files.kept)?;
        fs::create_dir_all(&files.staging)?;
        Ok(files)
    }

    /// Opens a captured file for reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when it was not captured.
    pub async fn open(&self, record: &FileRecord) -> io::Result<tokio::fs::File> {
        let stored = record.stored.as_deref().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        tokio::fs::File::open(self.path_of(stored)?).await
    }

    /// The name that an upload gets in custody.
    pub(crate) fn name(session: SessionId, upload: UploadId) -> String {
        format!("{session}/{upload}")
    }

    /// Where an upload's bytes arrive.
    pub(crate) fn staged(&self, upload: UploadId) -> PathBuf {
        self.staging.join(upload.to_string())
    }

    /// Whether the bytes are in custody already.
    pub(crate) fn holds(&self, stored: &str) -> bool {
        self.path_of(stored).is_ok_and(|path| path.is_file())
    }

    /// Proves the staged bytes and moves them into custody; `false` when they are not what was announced.
    pub(crate) fn keep(&self, upload: UploadId, stored: &str, sha256: &str) -> io::Result<bool> {
        let (from, to) = (self.staged(upload), self.path_of(stored)?);
        if digest_file(&from)? != sha256 {
            fs::remove_file(&from)?;
            return Ok(false);
        }
        let Some(dir) = to.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
        fs::create_dir_all(dir)?;
        fs::rename(&from, &to)?;
        File::open(dir)?.sync_all()?;
        File::open(&self.kept)?.sync_all()?;
        Ok(true)
    }

    /// Removes bytes that nobody names any more; gone already is fine.
    pub(crate) fn remove(&self, stored: &str) -> io::Result<()> {
        let path = self.path_of(stored)?;
        gone(fs::remove_file(&path))?;
        if let Some(dir) = path.parent() {
            // Other files of the session may be there still.
            drop(fs::remove_dir(dir));
        }
        Ok(())
    }

    /// The uploads that have bytes in staging.
    pub(crate) fn staged_uploads(&self) -> io::Result<Vec<UploadId>> {
        let mut uploads = Vec::new();
        for entry in fs::read_dir(&self.staging)? {
            let name = entry?.file_name();
            uploads.extend(name.to_str().and_then(|name| name.parse::<UploadId>().ok()));
        }
        Ok(uploads)
    }

    /// Removes an upload's staged bytes; gone already is fine.
    pub(crate) fn unstage(&self, upload: UploadId) -> io::Result<()> {
        gone(fs::remove_file(self.staged(upload)))
    }

    fn path_of(&self, stored: &str) -> io::Result<PathBuf> {
        let plain =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if stored.split('/').all(plain) {
            Ok(self.kept.join(stored))
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }
}

fn gone(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn digest_file(path: &Path) -> io::Result<String> {
    let (mut file, mut context) = (File::open(path)?, digest::Context::new(&digest::SHA256));
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex(context.finish().as_ref()));
        }
        context.update(&buffer[..read]);
    }
}

/// The key of the files API for these raw bytes: plain bytes as they are, the others percent-encoded.
#[must_use]
pub fn path_key(raw: &[u8]) -> String {
    let mut key = String::with_capacity(raw.len());
    for &byte in raw {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-' | b'~') {
            key.push(char::from(byte));
        } else {
            key.push('%');
            key.push_str(&hex(&[byte]).to_uppercase());
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_every_byte_apart() {
        assert_eq!(path_key(b"a/b-1.txt"), "a/b-1.txt");
        assert_eq!(path_key(b"a b\n%\xff"), "a%20b%0A%25%FF");
    }

    #[test]
    fn no_stored_name_leaves_custody() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::at(dir.path()).unwrap();
        for bad in ["../x", "a//b", "/etc/passwd", "", "a/.."] {
            assert!(files.path_of(bad).is_err(), "{bad} was taken");
        }
    }
}
