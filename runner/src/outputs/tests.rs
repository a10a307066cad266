//! The reading of an archive from a stream that may break.

use super::{archive::tests::*, *};
use futures_util::stream;

fn whole() -> Vec<u8> {
    finished(&[entry(b'5', b"outputs/", b"", b""), entry(b'0', b"outputs/a", b"", b"hello")])
}

async fn read_pieces(pieces: Vec<Result<bytes::Bytes, SandboxError>>) -> Result<Capture, Error> {
    let directory = tempfile::tempdir().unwrap();
    read(stream::iter(pieces), &directory.path().join("spool"), Limits::default()).await
}

#[tokio::test]
async fn a_whole_archive_is_read_in_pieces() {
    let pieces = whole().chunks(100).map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect();
    let capture = read_pieces(pieces).await.unwrap();
    assert_eq!(capture.files[0].path, b"a");
    let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(capture.files[0].sha256.as_deref(), Some(sha256));
}

#[tokio::test]
async fn a_broken_stream_is_incomplete_and_a_missing_directory_is_said() {
    let half = bytes::Bytes::from(whole().get(..600).unwrap().to_vec());
    assert!(matches!(read_pieces(vec![Ok(half.clone())]).await, Err(Error::Incomplete)));
    let broken = Err(SandboxError::Unavailable { detail: String::new() });
    assert!(matches!(read_pieces(vec![Ok(half), broken]).await, Err(Error::Incomplete)));
    let absent = SandboxError::Engine { action: "read", status: Some(404), detail: String::new() };
    assert!(matches!(read_pieces(vec![Err(absent)]).await, Err(Error::Missing)));
}

#[tokio::test]
async fn damage_ends_the_reading_early() {
    let endless = stream::repeat_with(|| Ok(bytes::Bytes::from_static(&[0x55; 4096])));
    let directory = tempfile::tempdir().unwrap();
    let got = read(endless, directory.path(), Limits::default()).await;
    assert!(matches!(got, Err(Error::Damaged(_))));
}
