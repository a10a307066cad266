//! `read`: numbered lines, an image or a PDF.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Seek};
use std::path::Path;

use base64::Engine;

use super::{Answer, Context, place, seen, text};
use crate::bound::MAX_RESULT_CHARS;
use crate::call::{Block, Read};

/// Images may have 5 MiB once encoded.
const MAX_IMAGE_BYTES: u64 = 5 * 1024 * 1024 / 4 * 3;
const MAX_PDF_BYTES: u64 = 5 * 1024 * 1024;
const MAX_TEXT_BYTES: u64 = super::edit::MAX_EDIT_BYTES;
/// A selection stops here; far more than fits a result.
const MAX_SELECTED_BYTES: usize = MAX_RESULT_CHARS * 5;

pub(super) fn run(input: &Read, context: &Context<'_>) -> Answer {
    let path = place::resolve(&input.file_path, &context.workspace);
    let mut file = place::open_regular(&path)?;
    let mut start = [0_u8; 8192];
    let got = file.read(&mut start).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let start = start.get(..got).unwrap_or_default();
    let media_type = media_type(start);
    file.rewind().map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    if let Some(media_type) = media_type {
        return media(&file, &path, media_type);
    }
    if start.contains(&0) {
        return Err(format!(
            "{} is a binary file and cannot be shown; look at it with bash, for example `file`, `xxd | head` \
             or `strings`",
            path.display()
        ));
    }
    let length = file.metadata().map_or(0, |found| found.len());
    if length <= MAX_TEXT_BYTES {
        let content = place::read_all(&file, &path, MAX_TEXT_BYTES)?;
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        context.seen.note(context.thread, &real, seen::digest(&content));
        return lines(&mut content.as_slice(), input, &path);
    }
    if input.view_range.is_none() {
        return Err(format!(
            "{} has {length} bytes, too many to read at once; pass view_range, for example [1, 200], or grep it",
            path.display()
        ));
    }
    lines(&mut BufReader::with_capacity(256 * 1024, file), input, &path)
}

fn media_type(start: &[u8]) -> Option<&'static str> {
    let webp = start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP");
    match start {
        _ if start.starts_with(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        _ if start.starts_with(b"\xff\xd8\xff") => Some("image/jpeg"),
        _ if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") => Some("image/gif"),
        _ if webp => Some("image/webp"),
        _ if start.starts_with(b"%PDF-") => Some("application/pdf"),
        _ => None,
    }
}

fn media(file: &File, path: &Path, media_type: &str) -> Answer {
    let pdf = media_type == "application/pdf";
    let bound = if pdf { MAX_PDF_BYTES } else { MAX_IMAGE_BYTES };
    let length = file.metadata().map_or(0, |found| found.len());
    if length > bound {
        return Err(format!(
            "{} is {media_type} of {length} bytes; at most {bound} can be shown. Make a smaller one with bash \
             (scale the image, split the PDF or extract its text)",
            path.display()
        ));
    }
    let bytes = place::read_all(file, path, bound)?;
    let data_base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
    let media_type = media_type.to_owned();
    if pdf {
        let title = path.file_name().map(|name| name.to_string_lossy().into_owned());
        return Ok(Block::Document { media_type, data_base64, title });
    }
    Ok(Block::Image { media_type, data_base64 })
}

/// The selected lines with their numbers, as `cat -n` shows them.
fn lines(from: &mut impl BufRead, input: &Read, path: &Path) -> Answer {
    let [first, last] = input.view_range.unwrap_or([1, -1]);
    if first < 1 || (last > 0 && last < first) {
        return Err(format!(
            "view_range [{first}, {last}] is not valid: lines count from 1, and the end is not before the \
             start (0 or less means the end of the file)"
        ));
    }
    let (mut shown, mut number) = (String::new(), 0_i64);
    let mut line = Vec::new();
    loop {
        line.clear();
        let got = from.by_ref().take(MAX_SELECTED_BYTES as u64).read_until(b'\n', &mut line);
        if got.map_err(|error| format!("{} cannot be read: {error}", path.display()))? == 0 {
            break;
        }
        number += 1;
        if last > 0 && number > last {
            break;
        }
        if number >= first {
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            shown.push_str(&format!("{number:>6}\t{}\n", String::from_utf8_lossy(line)));
        }
        if shown.len() > MAX_SELECTED_BYTES && input.view_range.is_some() {
            shown.push_str("(the selection goes on; ask for fewer lines)\n");
            break;
        }
    }
    match (shown.is_empty(), number) {
        (true, 0) => text(format!("({} is empty)", path.display())),
        (true, _) => {
            Err(format!("{} has only {number} lines; ask for lines from 1 to {number}", path.display()))
        }
        (false, _) => text(shown),
    }
}
