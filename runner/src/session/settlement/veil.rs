//! Secrets in captured files: their bytes are overwritten in our own copy before it is handed over, so that sizes stay, and
//! their names are masked. A copy that cannot be cleared is not handed over.

use super::manifest;
use crate::{mask::Masker, outputs::CapturedFile};
use ring::digest;
use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

const CHUNK_BYTES: usize = 1 << 20;
/// What stands in place of each byte of a secret.
const BLANK: u8 = b'*';

/// The same files without any secret.
pub(super) async fn over(mut files: Vec<CapturedFile>, mask: Arc<Masker>) -> Vec<CapturedFile> {
    if mask.is_empty() || files.is_empty() {
        return files;
    }
    let worked = tokio::task::spawn_blocking(move || {
        cover(&mut files, &mask);
        files
    });
    // Only a defect ends the work early, and then nothing is handed over at all.
    worked.await.unwrap_or_default()
}

fn cover(files: &mut [CapturedFile], mask: &Masker) {
    let mut changed = false;
    for file in files.iter_mut() {
        if mask.finds(&file.path) {
            file.path = mask.bytes(&file.path);
        }
        match file.spool.as_deref().map(|path| blank(path, mask)) {
            Some(Ok(found)) => changed |= found,
            Some(Err(error)) => {
                tracing::error!(%error, "a captured file could not be searched for secrets and is not handed over");
                manifest::withdraw(file);
            }
            None => {}
        }
    }
    if !changed {
        return;
    }
    // Two names may share one copy, so a change of one is a change of all that look alike.
    for file in files.iter_mut().filter(|file| file.sha256.is_some()) {
        match file.spool.as_deref().map(digest_of) {
            Some(Ok(digest)) => file.sha256 = Some(digest),
            Some(Err(_)) | None => manifest::withdraw(file),
        }
    }
}

/// Overwrites every secret in a file; whether there was any.
fn blank(path: &Path, mask: &Masker) -> io::Result<bool> {
    let mut file = File::options().read(true).write(true).open(path)?;
    let (mut window, mut start, mut found) = (Vec::new(), 0_u64, false);
    loop {
        let read = (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut window)?;
        for (from, to) in mask.places(&window) {
            found = true;
            file.write_all_at(&vec![BLANK; to - from], start + from as u64)?;
        }
        if read == 0 {
            break;
        }
        // What may be the beginning of a secret is looked at again, as it was.
        let done = window.len().saturating_sub(mask.longest().saturating_sub(1));
        window.drain(..done);
        start += done as u64;
    }
    if found {
        file.sync_all()?;
    }
    Ok(found)
}

fn digest_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()),
            read => context.update(&chunk[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::{event::CaptureStatus, protocol::append::sha256_hex};

    fn captured(dir: &Path, name: &str, content: &[u8]) -> CapturedFile {
        let path = dir.join(name);
        std::fs::write(&path, content).unwrap();
        CapturedFile {
            path: name.as_bytes().to_vec(),
            size: content.len() as u64,
            sha256: Some(sha256_hex(content)),
            status: CaptureStatus::Captured,
            spool: Some(path),
        }
    }

    #[tokio::test]
    async fn secrets_in_names_and_contents_are_gone_and_sizes_and_digests_fit() {
        let dir = tempfile::tempdir().unwrap();
        let mask = Arc::new(Masker::new(["correct-horse"]).0);
        // Once across the end of a chunk, once at the very end.
        let mut content = vec![b'x'; CHUNK_BYTES - 5];
        content.extend_from_slice(b"correct-horse, then correct-horse");
        let first = captured(dir.path(), "correct-horse.txt", &content);
        let plain = captured(dir.path(), "plain", b"nothing");
        let mut linked = first.clone();
        linked.path = b"link".to_vec();
        let twin = dir.path().join("twin");
        std::fs::hard_link(first.spool.as_ref().unwrap(), &twin).unwrap();
        linked.spool = Some(twin);
        let files = over(vec![first, plain.clone(), linked], mask).await;
        assert_eq!(files[0].path, b"[masked].txt");
        assert_eq!(files[1], plain);
        for file in [&files[0], &files[2]] {
            let left = std::fs::read(file.spool.as_ref().unwrap()).unwrap();
            assert_eq!(left.len(), content.len());
            assert!(left.ends_with(b"*************, then *************"));
            assert_eq!(file.sha256, Some(sha256_hex(&left)));
        }
    }

    #[tokio::test]
    async fn a_copy_that_cannot_be_searched_is_not_handed_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = captured(dir.path(), "gone", b"x");
        std::fs::remove_file(file.spool.as_ref().unwrap()).unwrap();
        file = over(vec![file], Arc::new(Masker::new(["correct-horse"]).0)).await.remove(0);
        assert_eq!((file.status, file.sha256), (CaptureStatus::Unreadable, None));
    }
}
