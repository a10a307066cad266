//! Frames between the runner and PID 1 of a sandbox, and between PID 1 and its supervisors.
//!
//! Layout, big endian: magic (4), version (1), kind (1), flags (2), message number (8), payload
//! length (4), CRC-32 over everything before it and the payload (4), payload.
//! Payloads are pieces of UTF-8 text, and the magic holds bytes that UTF-8 never uses. A frame cut
//! short by a lost attach is therefore recognised as soon as the next one begins.
//! Decoding must never panic and never hold more than one frame, whatever the peer sends.

/// First bytes of every frame: 0xF5 and 0xFF appear in no UTF-8 text.
pub const MAGIC: [u8; 4] = [0xF5, b'C', b'F', 0xFF];
/// The only version spoken so far.
pub const VERSION: u8 = 1;
/// Bytes in front of the payload.
pub const HEADER_BYTES: usize = 24;
/// Largest payload of one frame, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;
/// Flag: further frames with the same message number follow.
pub const FLAG_MORE: u16 = 1;

const CRC_AT: usize = 20;

/// One decoded frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What the message is; the meaning belongs to the message layer.
    pub kind: u8,
    /// Whether further frames of the same message follow.
    pub more: bool,
    /// Number of the message this frame belongs to, chosen by the sender.
    pub number: u64,
    /// At most [`MAX_PAYLOAD_BYTES`].
    pub payload: Vec<u8>,
}

/// Why bytes were not a frame. The decoder has already moved past them and may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Bytes in front of a frame that belong to none.
    #[error("{skipped} bytes belong to no frame")]
    Garbage {
        /// How many bytes were dropped.
        skipped: usize,
    },
    /// A frame of another protocol version.
    #[error("frame version {found} is not spoken here")]
    Version {
        /// The version in the header.
        found: u8,
    },
    /// A header that claims more than the bound.
    #[error("frame claims {claimed} bytes of payload")]
    TooLong {
        /// The claimed payload length in bytes.
        claimed: u32,
    },
    /// Unknown flag bits.
    #[error("frame carries unknown flags {flags:#06x}")]
    Flags {
        /// All flag bits of the header.
        flags: u16,
    },
    /// The checksum does not fit the content.
    #[error("frame checksum does not match")]
    Checksum,
    /// The next frame began before this one was complete.
    #[error("frame was cut short by the next one")]
    CutShort,
}

/// Appends one frame to `out`. A payload beyond [`MAX_PAYLOAD_BYTES`] is a fault of the caller
/// and is cut; use the message layer, which splits.
pub fn encode(kind: u8, more: bool, number: u64, payload: &[u8], out: &mut Vec<u8>) {
    let payload = payload.get(..MAX_PAYLOAD_BYTES).unwrap_or(payload);
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&(if more { FLAG_MORE } else { 0 }).to_be_bytes());
    out.extend_from_slice(&number.to_be_bytes());
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(0).to_be_bytes());
    let crc = checksum(out.get(start..).unwrap_or_default(), payload);
    out.extend_from_slice(&crc.to_be_bytes());
    out.extend_from_slice(payload);
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

/// Turns bytes into frames, in whatever pieces they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    lenient: bool,
}

impl Decoder {
    /// A decoder that reports every fault.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder for a fresh attach, whose stream may begin in the middle of a frame: faults
    /// before the first good frame are passed over in silence, later ones are reported.
    #[must_use]
    pub fn joining() -> Self {
        Self { lenient: true, ..Self::default() }
    }

    /// Adds received bytes. Call [`Decoder::next_frame`] until it has nothing more before adding
    /// again: then at most one incomplete frame is kept.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes held for a frame that is not complete yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Forgets everything held.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.start = 0;
    }

    /// The next complete frame, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// A [`WireError`] for each stretch of bytes that is no frame; decoding may continue after it.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        loop {
            match self.step() {
                Err(_) if self.lenient => {}
                Ok(Some(frame)) => {
                    self.lenient = false;
                    return Ok(Some(frame));
                }
                other => return other,
            }
        }
    }

    fn step(&mut self) -> Result<Option<Frame>, WireError> {
        let data = self.buffer.get(self.start..).unwrap_or_default();
        let at = find_magic(data, 0);
        if at > 0 {
            self.start += at;
            return Err(WireError::Garbage { skipped: at });
        }
        let Some(header) = Header::read(data) else { return Ok(None) };
        if let Err(error) = header.check() {
            self.start += MAGIC.len();
            return Err(error);
        }
        let end = HEADER_BYTES + header.length as usize;
        if let Some(body) = data.get(HEADER_BYTES..end) {
            if checksum(data.get(..CRC_AT).unwrap_or_default(), body) == header.crc {
                let frame = Frame {
                    kind: header.kind,
                    more: header.flags & FLAG_MORE != 0,
                    number: header.number,
                    payload: body.to_vec(),
                };
                self.start += end;
                return Ok(Some(frame));
            }
            self.start += MAGIC.len();
            return Err(WireError::Checksum);
        }
        // Text cannot hold the magic, so its presence proves that the rest will never come. The cut
        // may lie inside the header, whose fields are then those of the next frame.
        let next = find_magic(data, MAGIC.len());
        if data.len().saturating_sub(next) >= MAGIC.len() {
            self.start += next;
            return Err(WireError::CutShort);
        }
        Ok(None)
    }
}

/// Where the magic, or what may still become it at the end of `data`, begins at or after `from`.
fn find_magic(data: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(rest) = data.get(at..) {
        let Some(offset) = rest.iter().position(|byte| *byte == MAGIC[0]) else { return data.len() };
        at += offset;
        let rest = data.get(at..).unwrap_or_default();
        let seen = rest.len().min(MAGIC.len());
        if rest.get(..seen) == MAGIC.get(..seen) {
            return at;
        }
        at += 1;
    }
    data.len()
}

struct Header {
    version: u8,
    kind: u8,
    flags: u16,
    number: u64,
    length: u32,
    crc: u32,
}

impl Header {
    fn read(data: &[u8]) -> Option<Self> {
        let (head, _) = data.split_first_chunk::<HEADER_BYTES>()?;
        let [_, _, _, _, version, kind, f0, f1, rest @ ..] = *head;
        let [n0, n1, n2, n3, n4, n5, n6, n7, l0, l1, l2, l3, c0, c1, c2, c3] = rest;
        Some(Self {
            version,
            kind,
            flags: u16::from_be_bytes([f0, f1]),
            number: u64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            crc: u32::from_be_bytes([c0, c1, c2, c3]),
        })
    }

    fn check(&self) -> Result<(), WireError> {
        if self.version != VERSION {
            return Err(WireError::Version { found: self.version });
        }
        if self.flags & !FLAG_MORE != 0 {
            return Err(WireError::Flags { flags: self.flags });
        }
        if self.length as usize > MAX_PAYLOAD_BYTES {
            return Err(WireError::TooLong { claimed: self.length });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
