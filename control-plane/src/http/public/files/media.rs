//! How a file's bytes may be shown. A name alone proves nothing: a picture must look like one from its first bytes on.

/// How many first bytes the judgement needs.
pub(super) const HEAD_BYTES: usize = 16;

/// How a file is served.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Media {
    pub(super) content_type: &'static str,
    pub(super) disposition: String,
}

/// Judges a file by its key and its first bytes.
pub(super) fn of(key: &str, head: &[u8]) -> Media {
    let name = key.rsplit('/').next().unwrap_or(key);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    let shown = match extension.as_deref() {
        Some("png") if head.starts_with(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        Some("jpg" | "jpeg") if head.starts_with(b"\xff\xd8\xff") => Some("image/jpeg"),
        Some("gif") if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") => Some("image/gif"),
        Some("webp") if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") => Some("image/webp"),
        Some("txt" | "log" | "md" | "csv" | "tsv") => Some("text/plain; charset=utf-8"),
        _ => None,
    };
    // A key has only unreserved characters and percent signs, which is what this form of a name takes.
    let kind = if shown.is_some() { "inline" } else { "attachment" };
    Media {
        content_type: shown.unwrap_or("application/octet-stream"),
        disposition: format!("{kind}; filename*=UTF-8''{name}"),
    }
}

/// What a file is by its name alone, for who only reads about it.
pub(super) fn named(key: &str) -> &'static str {
    let extension = key.rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    match extension.map(|(_, extension)| extension.to_ascii_lowercase()).as_deref() {
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("svg") => "image/svg+xml",
        Some("pdf") => "application/pdf",
        Some("json") => "application/json",
        Some("html" | "htm") => "text/html",
        Some("md") => "text/markdown",
        Some("csv") => "text/csv",
        Some("txt" | "log") => "text/plain",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_that_look_like_it_and_plain_text_are_shown() {
        let png = b"\x89PNG\r\n\x1a\n";
        for (key, head, content_type, shown) in [
            ("a/b.png", &png[..], "image/png", true),
            ("b.PNG", png, "image/png", true),
            ("b.png", b"<html>", "application/octet-stream", false),
            ("b.jpg", b"\xff\xd8\xff\xe0", "image/jpeg", true),
            ("b.gif", b"GIF89a..", "image/gif", true),
            ("b.webp", b"RIFF....WEBP", "image/webp", true),
            ("b.webp", b"RIFF", "application/octet-stream", false),
            ("b.txt", b"<script>", "text/plain; charset=utf-8", true),
            ("b.html", b"<html>", "application/octet-stream", false),
            ("b.svg", b"<svg", "application/octet-stream", false),
            ("png", png, "application/octet-stream", false),
        ] {
            let media = of(key, head);
            assert_eq!(
                (media.content_type, media.disposition.starts_with("inline")),
                (content_type, shown),
                "{key}"
            );
        }
        assert_eq!(of("d/a%22b.bin", b"").disposition, "attachment; filename*=UTF-8''a%22b.bin");
    }
}
