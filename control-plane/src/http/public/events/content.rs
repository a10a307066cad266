//! Content blocks as callers send them, proven before anything is stored: no empty text, known media types, real base64.

use crate::http::fields::{Fields, unsupported, wrong};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use checkfu_shared::{
    content::{Block, Source},
    problem::Problem,
};
#[cfg(test)]
use serde_json::Value;

const BLOCKS_MAX: usize = 1_000;
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const DOCUMENTS: [&str; 1] = ["application/pdf"];

/// Takes `content`, a list of blocks.
///
/// # Errors
/// A refusal naming the first block that breaks a rule.
pub(crate) fn take(fields: &mut Fields) -> Result<Option<Vec<Block>>, Problem> {
    let path = fields.path("content");
    let dialect = fields.dialect();
    let Some(entries) = fields.list("content", BLOCKS_MAX)? else { return Ok(None) };
    let open = |(at, value)| block(Fields::of(value, &format!("{path}[{at}]"), dialect)?);
    entries.into_iter().enumerate().map(open).collect::<Result<_, _>>().map(Some)
}

fn block(mut fields: Fields) -> Result<Block, Problem> {
    let kind = fields.required_text("type", 1, 64)?;
    let block = match kind.as_str() {
        "text" => Block::Text { text: fields.required_text("text", 1, usize::MAX)? },
        "image" => Block::Image { source: source(&mut fields, &IMAGES)? },
        "document" => Block::Document {
            source: source(&mut fields, &DOCUMENTS)?,
            title: fields.bounded_text("title", 500)?,
            context: fields.bounded_text("context", 10_000)?,
        },
        "search_result" => {
            return Err(unsupported(
                &fields.path("type"),
                "Search results are not accepted yet. Send them as text.",
            ));
        }
        _ => return Err(wrong(&fields.path("type"), "must be text, image or document")),
    };
    fields.end()?;
    Ok(block)
}

fn source(fields: &mut Fields, media_types: &[&str]) -> Result<Source, Problem> {
    let path = fields.path("source");
    let mut source = fields.object("source")?.ok_or_else(|| wrong(&path, "is required"))?;
    let kind = source.required_text("type", 1, 64)?;
    let read = match kind.as_str() {
        "base64" => base64(&mut source, media_types)?,
        "text" if media_types == DOCUMENTS => plain(&mut source)?,
        "url" => Source::Url { url: url(&mut source)? },
        "file" => {
            let message = "Uploaded files are not there yet. Send the bytes as base64.";
            return Err(unsupported(&source.path("type"), message));
        }
        _ => return Err(wrong(&source.path("type"), "must be base64, url, or text for a document")),
    };
    source.end()?;
    Ok(read)
}

fn base64(source: &mut Fields, media_types: &[&str]) -> Result<Source, Problem> {
    let media_type = source.required_text("media_type", 1, 128)?;
    if !media_types.contains(&media_type.as_str()) {
        let rule = format!("must be one of {}", media_types.join(", "));
        return Err(wrong(&source.path("media_type"), &rule));
    }
    let data = source.required_text("data", 1, usize::MAX)?;
    if STANDARD.decode(&data).is_err() {
        return Err(wrong(&source.path("data"), "must be standard base64 with its padding"));
    }
    Ok(Source::Base64 { media_type, data })
}

fn plain(source: &mut Fields) -> Result<Source, Problem> {
    if source.text("media_type")?.is_some_and(|media_type| media_type != "text/plain") {
        return Err(wrong(&source.path("media_type"), "must be text/plain"));
    }
    let data = source.required_text("data", 1, usize::MAX)?;
    Ok(Source::Text { media_type: "text/plain".to_owned(), data })
}

fn url(source: &mut Fields) -> Result<String, Problem> {
    let url = source.required_text("url", 1, 2_048)?;
    let printable = url.bytes().all(|byte| byte.is_ascii_graphic());
    if printable && url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty()) {
        Ok(url)
    } else {
        Err(wrong(&source.path("url"), "must be an https address"))
    }
}

/// Refuses content without any block.
///
/// # Errors
/// `invalid_request`.
pub(crate) fn some(blocks: Option<Vec<Block>>, path: &str) -> Result<Vec<Block>, Problem> {
    match blocks {
        Some(blocks) if !blocks.is_empty() => Ok(blocks),
        _ => Err(wrong(path, "must have at least one block")),
    }
}

/// Reads blocks as the tests write them.
#[cfg(test)]
pub(crate) fn read(content: Value) -> Result<Vec<Block>, Problem> {
    use crate::http::auth::Dialect;
    let mut fields = Fields::body(serde_json::json!({ "content": content }), Dialect::Checkfu)?;
    some(take(&mut fields)?, "content")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn good_blocks_come_through_unchanged() {
        for block in [
            json!({"type": "text", "text": "hi"}),
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}}),
            json!({"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}),
            json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}, "title": "t"}),
        ] {
            assert_eq!(json!(read(json!([block.clone()])).unwrap()), json!([block]));
        }
    }

    #[test]
    fn bad_blocks_are_refused() {
        let image = |source: Value| json!([{"type": "image", "source": source}]);
        for bad in [
            json!([]),
            Value::Null,
            json!("hi"),
            json!([{"type": "text", "text": ""}]),
            json!([{"type": "text"}]),
            json!([{"type": "text", "text": 1}]),
            json!([{"type": "text", "text": "x", "extra": 1}]),
            json!([{"type": "redacted"}]),
            json!([{"type": "search_result"}]),
            image(Value::Null),
            image(json!({"type": "base64", "media_type": "image/svg+xml", "data": "aGk="})),
            image(json!({"type": "base64", "media_type": "image/png", "data": "not base64"})),
            image(json!({"type": "base64", "media_type": "image/png", "data": ""})),
            image(json!({"type": "url", "url": "http://x.test"})),
            image(json!({"type": "url", "url": "file:///etc/passwd"})),
            image(json!({"type": "file", "file_id": "file_x"})),
            image(json!({"type": "text", "data": "x"})),
        ] {
            assert_eq!(read(bad.clone()).map_err(|problem| problem.code.status()), Err(400), "{bad}");
        }
    }
}
