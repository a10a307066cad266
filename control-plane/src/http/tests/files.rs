//! Captured files: keys, windows, what a browser may do with them.

use super::{sessions::idle, *};
use checkfu_shared::id::{FileId, SessionId};
use rusqlite::params;

/// Puts a file into custody as a settlement would leave it.
async fn put(bench: &Bench, session: &str, path: &str, status: &'static str, bytes: Vec<u8>) {
    let (session, path) = (session.parse::<SessionId>().unwrap(), path.to_owned());
    let id = FileId::mint();
    let dir = bench.plane.config.data_dir.join("files").join(session.to_string());
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join(id.to_string()), &bytes).unwrap();
    let stored = (status == "captured").then(|| format!("{session}/{id}"));
    let size = i64::try_from(bytes.len()).unwrap();
    bench
        .plane
        .store
        .write(move |tx| {
            tx.execute(
                "insert into files (session, path, id, path_b64, status, size, sha256, stored, captured_at)
                 values ((select key from sessions where id = ?1), ?2, ?3, '', ?4, ?5, null, ?6, 0)",
                params![session.to_string(), path, id.to_string(), status, size, stored],
            )?;
            Ok(())
        })
        .await
        .unwrap();
}

async fn get(bench: &Bench, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
    let all: Vec<_> = SDK.iter().chain(headers).copied().collect();
    let response = bench.raw(bench.request(Method::GET, path, &all).body(Body::empty()).unwrap()).await;
    let (parts, body) = response.into_parts();
    (parts.status, parts.headers, axum::body::to_bytes(body, usize::MAX).await.unwrap().to_vec())
}

#[tokio::test]
async fn files_are_listed_and_served_window_by_window() {
    let bench = Bench::new().await;
    let (session, path) = idle(&bench).await;
    let id = session["id"].as_str().unwrap();
    let large: Vec<u8> = (0..(9 << 20)).map(|n: u32| n.to_le_bytes()[(n % 3) as usize]).collect();
    put(&bench, id, "a%20b.bin", "captured", large.clone()).await;
    put(&bench, id, "empty.txt", "captured", Vec::new()).await;
    put(&bench, id, "huge.bin", "too_large", b"x".to_vec()).await;
    let listed = bench.get(&format!("{path}/files")).await.ok();
    let rows: Vec<_> =
        listed["data"].as_array().unwrap().iter().map(|f| (f["path"].clone(), f["status"].clone())).collect();
    assert_eq!(
        rows,
        [
            (json!("a%20b.bin"), json!("captured")),
            (json!("empty.txt"), json!("captured")),
            (json!("huge.bin"), json!("too_large")),
        ]
    );
    let content = format!("{path}/files/content?path=a%2520b.bin");
    let (status, headers, first) = get(&bench, &content, &[]).await;
    assert_eq!((status.as_u16(), first.len()), (206, 8 << 20));
    assert_eq!(headers["content-range"], format!("bytes 0-{}/{}", (8 << 20) - 1, 9 << 20));
    let (_, _, rest) = get(&bench, &format!("{content}&offset={}", 8 << 20), &[]).await;
    assert!([first, rest].concat() == large, "the windows are not the file");
    let (_, _, typed) = get(&bench, &format!("{path}/files/content?path=a%20b.bin&length=3"), &[]).await;
    assert_eq!(typed, large[..3]);
    let (status, headers, part) = get(&bench, &content, &[("range", "bytes=5-8")]).await;
    assert_eq!((status.as_u16(), &part[..]), (206, &large[5..9]));
    assert_eq!(headers["content-length"], "4");
    let (status, headers, _) = get(&bench, &format!("{content}&offset={}", 9 << 20), &[]).await;
    assert_eq!(
        (status.as_u16(), headers["content-range"].to_str().unwrap()),
        (416, format!("bytes */{}", 9 << 20).as_str())
    );
    let (status, _, bytes) = get(&bench, &format!("{path}/files/content?path=empty.txt"), &[]).await;
    assert_eq!((status.as_u16(), bytes.len()), (200, 0));
    bench.get(&format!("{content}&length={}", (8 << 20) + 1)).await.refused(400, "invalid_request");
    bench.get(&format!("{path}/files/content?path=huge.bin")).await.refused(404, "not_found");
    bench.get(&format!("{path}/files/content")).await.refused(400, "invalid_request");
    for other in ["../../checkfu.db", "/etc/passwd", "nope", "%00"] {
        bench.get(&format!("{path}/files/content?path={other}")).await.refused(404, "not_found");
    }
    let page = bench.get(&format!("{path}/files?limit=2")).await.ok();
    let next = format!("{path}/files?limit=2&page={}", page["next_page"].as_str().unwrap());
    assert_eq!(bench.get(&next).await.ok()["data"][0]["path"], "huge.bin");
}

#[tokio::test]
async fn a_browser_shows_pictures_and_text_and_runs_nothing() {
    let bench = Bench::new().await;
    let (session, path) = idle(&bench).await;
    let id = session["id"].as_str().unwrap();
    for (name, bytes, content_type, shown) in [
        ("a.png", &b"\x89PNG\r\n\x1a\nrest"[..], "image/png", true),
        ("fake.png", b"<html>", "application/octet-stream", false),
        ("a.txt", b"<script>", "text/plain; charset=utf-8", true),
        ("a.html", b"<script>", "application/octet-stream", false),
    ] {
        put(&bench, id, name, "captured", bytes.to_vec()).await;
        let (status, headers, got) = get(&bench, &format!("{path}/files/content?path={name}"), &[]).await;
        assert_eq!((status.as_u16(), &got[..]), (200, bytes));
        assert_eq!(headers["content-type"], content_type, "{name}");
        assert_eq!(headers["content-disposition"].to_str().unwrap().starts_with("inline"), shown, "{name}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert!(headers["content-security-policy"].to_str().unwrap().starts_with("sandbox"));
    }
}

#[tokio::test]
async fn the_sdk_finds_captured_files_by_their_session_and_reads_them_by_id() {
    let bench = Bench::new().await;
    let (session, _) = idle(&bench).await;
    let again = json!({"agent": session["agent"]["id"], "environment_id": session["environment_id"]});
    let other = bench.sdk("/v1/sessions", again).await.ok();
    let id = session["id"].as_str().unwrap();
    put(&bench, id, "a/report.md", "captured", b"# R".to_vec()).await;
    put(&bench, id, "b.bin", "captured", vec![1, 2]).await;
    put(&bench, id, "huge.bin", "too_large", Vec::new()).await;
    put(&bench, other["id"].as_str().unwrap(), "other.txt", "captured", b"x".to_vec()).await;
    let page = bench.get(&format!("/v1/files?scope_id={id}&limit=1")).await.ok();
    let file = page["data"][0].clone();
    let file_id = file["id"].as_str().unwrap().to_owned();
    let want = json!({
        "id": file_id, "type": "file", "filename": "a/report.md", "mime_type": "text/markdown", "size_bytes": 3,
        "created_at": "1970-01-01T00:00:00.000Z", "downloadable": true, "expires_at": null,
        "scope": {"type": "session", "id": id},
    });
    assert_eq!(file, want);
    let next = page["next_page"].as_str().unwrap();
    let rest = bench.get(&format!("/v1/files?scope_id={id}&page={next}")).await.ok();
    assert_eq!((&rest["data"][0]["filename"], rest["data"].as_array().unwrap().len()), (&json!("b.bin"), 1));
    assert_eq!(bench.get(&format!("/v1/files/{file_id}")).await.ok(), want);
    let (status, _, bytes) = get(&bench, &format!("/v1/files/{file_id}/content"), &[]).await;
    assert_eq!((status.as_u16(), bytes.as_slice()), (200, &b"# R"[..]));
    for (path, wanted) in [
        ("/v1/files".to_owned(), 400),
        (format!("/v1/files?scope_id={id}&ids[]={file_id}"), 400),
        ("/v1/files?scope_id=sess_00000000000000000000000000000000".to_owned(), 404),
        (format!("/v1/files/{}", FileId::mint()), 404),
    ] {
        assert_eq!(get(&bench, &path, &[]).await.0.as_u16(), wanted, "{path}");
    }
}
