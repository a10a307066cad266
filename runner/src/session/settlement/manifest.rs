//! The captured files in the protocol's forms. Pure. A file's key is its place in the list.

use crate::outputs::CapturedFile;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use checkfu_shared::{
    event::CaptureStatus,
    protocol::settlement::{ManifestFile, SettledFile},
};

/// The files to announce: those whose bytes are in our spool.
pub(super) fn announced(files: &[CapturedFile]) -> Vec<ManifestFile> {
    let entries = files.iter().enumerate().filter(|(_, file)| is_captured(file));
    entries
        .filter_map(|(at, file)| {
            Some(ManifestFile {
                key: format!("f{at}"),
                path_b64: STANDARD.encode(&file.path),
                size: file.size,
                sha256: file.sha256.clone()?,
            })
        })
        .collect()
}

/// The file with this key.
pub(super) fn file<'f>(files: &'f mut [CapturedFile], key: &str) -> Option<&'f mut CapturedFile> {
    files.get_mut(key.strip_prefix('f')?.parse::<usize>().ok()?)
}

/// What becomes of each file, as the settlement says it.
pub(super) fn settled(file: &CapturedFile) -> SettledFile {
    SettledFile {
        path_b64: STANDARD.encode(&file.path),
        size: file.size,
        sha256: file.sha256.clone().filter(|_| is_captured(file)),
        status: file.status,
    }
}

/// The bytes of this file did not reach custody.
pub(super) fn withdraw(file: &mut CapturedFile) {
    if is_captured(file) {
        file.status = CaptureStatus::Unreadable;
        file.sha256 = None;
    }
}

fn is_captured(file: &CapturedFile) -> bool {
    file.status == CaptureStatus::Captured
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<CapturedFile> {
        let file = |path: &[u8], status| CapturedFile {
            path: path.to_vec(),
            size: 3,
            sha256: (status == CaptureStatus::Captured).then(|| "ab".to_owned()),
            status,
            spool: None,
        };
        vec![
            file(b"a", CaptureStatus::TooLarge),
            file(b"\xff", CaptureStatus::Captured),
            file(b"c", CaptureStatus::Captured),
        ]
    }

    #[test]
    fn only_captured_files_are_announced_and_found_again_by_their_key() {
        let mut files = files();
        let announced = announced(&files);
        assert_eq!(announced.iter().map(|file| file.path_b64.as_str()).collect::<Vec<_>>(), ["/w==", "Yw=="]);
        assert_eq!(file(&mut files, &announced[0].key).unwrap().path, b"\xff");
        for bad in ["", "f", "f9", "x1", "f-1"] {
            assert!(file(&mut files, bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_did_not_arrive_is_not_settled_as_captured() {
        let mut files = files();
        files.iter_mut().for_each(withdraw);
        let statuses: Vec<_> = files.iter().map(|file| settled(file).status).collect();
        assert_eq!(statuses, [CaptureStatus::TooLarge, CaptureStatus::Unreadable, CaptureStatus::Unreadable]);
        assert!(files.iter().all(|file| settled(file).sha256.is_none()));
    }
}
