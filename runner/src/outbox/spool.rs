//! The events of one claim on this disk: numbered frames in segment files that only grow, read back in order.
//! What `append` returned for survives a crash; a torn tail, which nothing ever acted on, is cut off at opening.

use super::frame::{self, HEADER_BYTES};
use crate::state::sync_directory;
use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// A segment this large is followed by a new one, so that acknowledged ones can go.
const SEGMENT_BYTES: u64 = 8 << 20;

#[derive(Debug)]
struct Segment {
    first: u64,
    file: File,
    bytes: u64,
}

/// A place in the spool: the frame of `index` begins at `offset` of the segment.
#[derive(Debug, Clone, Copy)]
struct Place {
    segment: usize,
    offset: u64,
    index: u64,
}

/// The spool of one claim.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    segments: VecDeque<Segment>,
    next: u64,
    acked: Place,
    unacked_bytes: u64,
    segment_bytes: u64,
    broken: bool,
}

/// Events in order, as JSON, from `first` on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) events: Vec<Vec<u8>>,
}

impl Spool {
    /// Opens or begins the spool in `dir`. `acked` is what the log already has: the spool goes on at the larger of both.
    pub(crate) fn open(dir: &Path, acked: u64) -> io::Result<Self> {
        Self::open_with(dir, acked, SEGMENT_BYTES)
    }

    pub(crate) fn open_with(dir: &Path, acked: u64, segment_bytes: u64) -> io::Result<Self> {
        let (segments, next) = load(dir)?;
        let start =
            Place { segment: 0, offset: 0, index: segments.front().map_or(next, |first| first.first) };
        let mut spool = Self {
            dir: dir.to_owned(),
            unacked_bytes: segments.iter().map(|segment| segment.bytes).sum(),
            segments,
            next,
            acked: start,
            segment_bytes,
            broken: false,
        };
        if acked >= spool.next {
            spool.restart(acked)?;
        } else if acked >= spool.acked.index {
            spool.acknowledge(acked)?;
        }
        Ok(spool)
    }

    /// The index that the next event gets.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The index of the first event that is not acknowledged.
    pub(crate) const fn acked(&self) -> u64 {
        self.acked.index
    }

    /// Bytes on disk of events that are not acknowledged.
    pub(crate) const fn unacked_bytes(&self) -> u64 {
        self.unacked_bytes
    }

    /// Adds events; they are durable when it returns. After an error none of them was added.
    pub(crate) fn append(&mut self, events: &[Vec<u8>]) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write could not be made durable"));
        }
        let mut frames = Vec::with_capacity(events.iter().map(|event| event.len() + HEADER_BYTES).sum());
        for (index, event) in (self.next..).zip(events) {
            frame::encode(index, event, &mut frames);
        }
        if self.segments.back().is_none_or(|last| last.bytes >= self.segment_bytes) {
            self.begin_segment()?;
        }
        let Some(last) = self.segments.back_mut() else { return Err(io::Error::other("no segment")) };
        if let Err(error) = last.file.write_all(&frames) {
            // Half a frame in front of later ones would hide them.
            self.broken = last.file.set_len(last.bytes).is_err();
            return Err(error);
        }
        if let Err(error) = last.file.sync_data() {
            // After a failed flush the kernel may forget the pages, so nothing more can be promised.
            self.broken = true;
            return Err(error);
        }
        last.bytes += frames.len() as u64;
        self.unacked_bytes += frames.len() as u64;
        self.next += events.len() as u64;
        Ok(())
    }

    /// Whether nothing can be appended any more.
    pub(crate) const fn is_broken(&self) -> bool {
        self.broken
    }

    /// The first events that are not acknowledged, within the limits, at least one when there is one.
    pub(crate) fn peek(&self, bytes_max: usize, events_max: usize) -> io::Result<Batch> {
        let mut batch = Batch { first: self.acked.index, events: Vec::new() };
        let (mut place, mut bytes) = (self.acked, 0);
        while place.index < self.next && batch.events.len() < events_max {
            let (header, at) = self.header_at(place)?;
            bytes += header.length + 1;
            if bytes > bytes_max && !batch.events.is_empty() {
                break;
            }
            let mut json = vec![0; header.length];
            self.segments[at.segment].file.read_exact_at(&mut json, at.offset + HEADER_BYTES as u64)?;
            if !frame::checks(header, &json) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an event on disk was changed"));
            }
            batch.events.push(json);
            place = after(at, header);
        }
        Ok(batch)
    }

    /// Moves the acknowledged position to `index`, in either direction, and removes segments that nobody needs.
    /// `false` when the spool does not reach there.
    pub(crate) fn acknowledge(&mut self, index: u64) -> io::Result<bool> {
        let start = self.segments.front().map_or(self.next, |first| first.first);
        if index < start || index > self.next {
            return Ok(false);
        }
        let mut place = self.acked;
        if index < place.index {
            place = Place { segment: 0, offset: 0, index: start };
            self.unacked_bytes = self.segments.iter().map(|segment| segment.bytes).sum();
        }
        while place.index < index {
            let (header, at) = self.header_at(place)?;
            self.unacked_bytes -= (HEADER_BYTES + header.length) as u64;
            place = after(at, header);
        }
        self.acked = place;
        self.trim()?;
        Ok(true)
    }

    fn trim(&mut self) -> io::Result<()> {
        while self.segments.len() > 1 && self.segments[1].first <= self.acked.index {
            let Some(gone) = self.segments.pop_front() else { break };
            fs::remove_file(segment_path(&self.dir, gone.first))?;
            if self.acked.segment == 0 {
                // The position stood at the very end of what is gone.
                self.acked.offset = 0;
            } else {
                self.acked.segment -= 1;
            }
        }
        Ok(())
    }

    /// Begins anew behind what the log has and this disk lost.
    fn restart(&mut self, next: u64) -> io::Result<()> {
        for segment in self.segments.drain(..) {
            fs::remove_file(segment_path(&self.dir, segment.first))?;
        }
        self.next = next;
        self.unacked_bytes = 0;
        self.acked = Place { segment: 0, offset: 0, index: next };
        self.begin_segment()
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let path = segment_path(&self.dir, self.next);
        let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)?;
        sync_directory(&self.dir)?;
        self.segments.push_back(Segment { first: self.next, file, bytes: 0 });
        Ok(())
    }

    /// The header of the frame at `place`, and the place normalised to the segment that holds it.
    fn header_at(&self, mut place: Place) -> io::Result<(frame::Header, Place)> {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "an event is missing on disk");
        if place.offset >= self.segments.get(place.segment).ok_or_else(missing)?.bytes {
            place = Place { segment: place.segment + 1, offset: 0, index: place.index };
        }
        let segment = self.segments.get(place.segment).ok_or_else(missing)?;
        let mut head = [0; HEADER_BYTES];
        segment.file.read_exact_at(&mut head, place.offset)?;
        let header = frame::header(&head).filter(|header| header.index == place.index).ok_or_else(missing)?;
        Ok((header, place))
    }
}

const fn after(place: Place, header: frame::Header) -> Place {
    let offset = place.offset + (HEADER_BYTES + header.length) as u64;
    Place { segment: place.segment, offset, index: place.index + 1 }
}

fn segment_path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("events-{first:020}.log"))
}

/// Reads the segments, cuts off what does not check, and removes what lies behind a hole.
fn load(dir: &Path) -> io::Result<(VecDeque<Segment>, u64)> {
    let mut firsts = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let first: Option<u64> =
            name.to_str().and_then(|name| name.strip_prefix("events-")?.strip_suffix(".log")?.parse().ok());
        firsts.extend(first);
    }
    firsts.sort_unstable();
    let (mut segments, mut next) = (VecDeque::new(), None);
    for first in firsts {
        let path = segment_path(dir, first);
        if next.is_some_and(|next| next != first) {
            tracing::warn!(first, "a spool segment lies behind a hole and is dropped");
            fs::remove_file(path)?;
            continue;
        }
        let file = OpenOptions::new().read(true).append(true).open(path)?;
        let (bytes, after) = intact(&file, first)?;
        if bytes < file.metadata()?.len() {
            tracing::warn!(first, bytes, "a torn write at the end of a spool segment is cut off");
            file.set_len(bytes)?;
        }
        // What a crash left in the page cache counts only once it is on the disk.
        file.sync_data()?;
        next = Some(after);
        segments.push_back(Segment { first, file, bytes });
    }
    sync_directory(dir)?;
    Ok((segments, next.unwrap_or(0)))
}

/// How many bytes of a segment are whole frames in order, and the index after them.
fn intact(file: &File, first: u64) -> io::Result<(u64, u64)> {
    let mut reader = io::BufReader::with_capacity(256 << 10, file);
    let (mut bytes, mut index) = (0, first);
    let mut head = [0; HEADER_BYTES];
    loop {
        if !filled(&mut reader, &mut head)? {
            return Ok((bytes, index));
        }
        let Some(header) = frame::header(&head).filter(|header| header.index == index) else {
            return Ok((bytes, index));
        };
        let mut json = vec![0; header.length];
        if !filled(&mut reader, &mut json)? || !frame::checks(header, &json) {
            return Ok((bytes, index));
        }
        bytes += (HEADER_BYTES + header.length) as u64;
        index += 1;
    }
}

fn filled(reader: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
