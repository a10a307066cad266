//! Masking of bytes that come in pieces. Whatever the cuts, the outcome is the same as of the whole.

use super::{MARK, Masker};

/// One stream under way. It belongs to one masker.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// What may still become part of a secret; always shorter than the longest one.
    kept: Vec<u8>,
    /// How many of the kept bytes the mark that was given out last already stands for, if one was.
    covered: Option<usize>,
}

impl Stream {
    /// Takes more bytes and gives out what is decided.
    pub fn push(&mut self, masker: &Masker, bytes: &[u8], out: &mut Vec<u8>) {
        self.kept.extend_from_slice(bytes);
        let decided = masker.undecided(&self.kept);
        self.release(masker, decided, out);
    }

    /// The stream is over: gives out everything that was held back.
    pub fn finish(mut self, masker: &Masker, out: &mut Vec<u8>) {
        self.release(masker, self.kept.len(), out);
    }

    fn release(&mut self, masker: &Masker, decided: usize, out: &mut Vec<u8>) {
        let mut places = masker.places(&self.kept);
        places.sort_unstable();
        let mut hidden = self.covered;
        for (start, end) in places.into_iter().take_while(|(start, _)| *start < decided) {
            // What touches the last mark is part of it, so that cuts change nothing.
            if hidden.is_none_or(|hidden| start > hidden) {
                out.extend_from_slice(&self.kept[hidden.unwrap_or(0)..start]);
                out.extend_from_slice(MARK.as_bytes());
            }
            hidden = Some(hidden.unwrap_or(0).max(end));
        }
        let at = hidden.unwrap_or(0);
        if at < decided {
            out.extend_from_slice(&self.kept[at..decided]);
            hidden = None;
        }
        self.kept.drain(..decided);
        self.covered = hidden.map(|hidden| hidden - decided);
    }
}
