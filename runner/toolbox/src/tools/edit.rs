//! `edit`: replaces text that occurs once, or everywhere when asked, in a file nobody changed
//! behind the thread's back.

use super::{Answer, Context, place, seen, text, write};
use crate::call::Edit;

/// Largest file that can be edited, in bytes.
pub(super) const MAX_EDIT_BYTES: u64 = 16 * 1024 * 1024;

pub(super) fn run(input: &Edit, context: &Context<'_>) -> Answer {
    let path = place::resolve(&input.file_path, &context.workspace);
    let shown = path.display();
    if input.old_string.is_empty() {
        return Err("old_string is empty; give the text to replace, or use write for a new file".to_owned());
    }
    if input.old_string == input.new_string {
        return Err("old_string and new_string are the same; there is nothing to change".to_owned());
    }
    let file = place::open_regular(&path)?;
    let bytes = place::read_all(&file, &path, MAX_EDIT_BYTES)?;
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    if context.seen.changed(context.thread, &real, seen::digest(&bytes)) {
        return Err(format!("{shown} changed since you last read it; read it again, then edit"));
    }
    let content = String::from_utf8(bytes)
        .map_err(|_| format!("{shown} is not UTF-8 text; change it with bash (sed, perl, python)"))?;
    let count = content.matches(&input.old_string).count();
    let all = input.replace_all == Some(true);
    match count {
        0 => Err(format!(
            "old_string does not occur in {shown}; read the file and copy the text exactly, spaces and line \
             breaks included, without the line numbers"
        )),
        2.. if !all => Err(format!(
            "old_string occurs {count} times in {shown}; add surrounding lines until it is unique, or set \
             replace_all"
        )),
        _ => {
            let changed = content.replace(&input.old_string, &input.new_string);
            let real = write::replace(&path, changed.as_bytes())?;
            context.seen.note(context.thread, &real, seen::digest(changed.as_bytes()));
            let times = if count == 1 { "1 place".to_owned() } else { format!("{count} places") };
            text(format!("edited {shown}: replaced {times}"))
        }
    }
}
