//! A tar reader for bytes that nobody vouches for: ustar, PAX and GNU long names, in whatever pieces they arrive.
//! Sizes come from PAX when PAX has one, records are split by their own length and never by newlines, names are
//! bytes. It holds one header or one bounded extension at a time, and content passes through untouched.

const BLOCK: usize = 512;
/// Longest PAX or GNU extension that is kept.
const MAX_EXTENSION: u64 = 1 << 20;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    HardLink,
    Directory,
    /// Symbolic links, devices, pipes and whatever else there is.
    Other,
}

/// The description of an entry; its content, if any, follows as [`Sink::data`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) path: Vec<u8>,
    /// Where a link points.
    pub(super) target: Vec<u8>,
    /// Bytes of content that follow.
    pub(super) size: u64,
}

/// Who is told what the archive holds.
pub(super) trait Sink {
    type Error: From<Damage>;
    fn entry(&mut self, entry: Entry) -> Result<(), Self::Error>;
    fn data(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
    fn end_of_entry(&mut self) -> Result<(), Self::Error>;
}

/// Why bytes are no archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Damage(pub(super) &'static str);

#[derive(Debug)]
enum State {
    Header,
    Extension { kind: Extension, left: u64, padding: usize },
    Content { left: u64, padding: usize },
    Padding { left: usize },
    End,
}

#[derive(Debug, Clone, Copy)]
enum Extension {
    Pax,
    Global,
    LongName,
    LongLink,
}

/// What extensions say about the next entry.
#[derive(Debug, Default)]
struct Pending {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Reads one archive.
#[derive(Debug)]
pub(super) struct Reader {
    state: State,
    held: Vec<u8>,
    pending: Pending,
    zero_blocks: u8,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { state: State::Header, held: Vec::new(), pending: Pending::default(), zero_blocks: 0 }
    }

    /// Whether the end marker was seen.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Takes the next bytes, all of them.
    pub(super) fn feed<S: Sink>(&mut self, mut bytes: &[u8], sink: &mut S) -> Result<(), S::Error> {
        while !bytes.is_empty() {
            match self.state {
                State::Header => {
                    bytes = self.hold(bytes, BLOCK);
                    if self.held.len() == BLOCK {
                        let block = std::mem::take(&mut self.held);
                        self.header(&block, sink)?;
                    }
                }
                State::Extension { kind, left, padding } => {
                    let (taken, rest) = split(bytes, left);
                    self.held.extend_from_slice(taken);
                    bytes = rest;
                    let left = left - taken.len() as u64;
                    self.state = State::Extension { kind, left, padding };
                    if left == 0 {
                        self.extension(kind)?;
                        self.state = after(padding);
                    }
                }
                State::Content { left, padding } => {
                    let (taken, rest) = split(bytes, left);
                    sink.data(taken)?;
                    bytes = rest;
                    let left = left - taken.len() as u64;
                    self.state = State::Content { left, padding };
                    if left == 0 {
                        sink.end_of_entry()?;
                        self.state = after(padding);
                    }
                }
                State::Padding { left } => {
                    let (taken, rest) = bytes.split_at(left.min(bytes.len()));
                    bytes = rest;
                    let left = left - taken.len();
                    self.state = after(left);
                }
                // Docker may pad the archive; nothing after its end means anything.
                State::End => return Ok(()),
            }
        }
        Ok(())
    }

    fn hold<'a>(&mut self, bytes: &'a [u8], want: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at((want - self.held.len()).min(bytes.len()));
        self.held.extend_from_slice(taken);
        rest
    }

    fn header<S: Sink>(&mut self, block: &[u8], sink: &mut S) -> Result<(), S::Error> {
        if block.iter().all(|byte| *byte == 0) {
            self.zero_blocks += 1;
            if self.zero_blocks == 2 {
                self.state = State::End;
            }
            return Ok(());
        }
        if self.zero_blocks > 0 {
            return Err(Damage("something follows half an end").into());
        }
        let header = Header(block);
        header.check()?;
        let own_size = header.size()?;
        if let Some(kind) = header.extension() {
            if own_size == 0 || own_size > MAX_EXTENSION {
                return Err(Damage("a name or attribute is empty or too long").into());
            }
            self.state = State::Extension { kind, left: own_size, padding: padding_of(own_size) };
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let kind = header.kind()?;
        if kind != Kind::File && own_size != 0 {
            return Err(Damage("an entry without content claims some").into());
        }
        let size = if kind == Kind::File { pending.size.unwrap_or(own_size) } else { 0 };
        let path = pending.path.unwrap_or_else(|| header.path());
        let target = pending.target.unwrap_or_else(|| header.target());
        sink.entry(Entry { kind, path, target, size })?;
        if size == 0 {
            sink.end_of_entry()?;
        } else {
            self.state = State::Content { left: size, padding: padding_of(size) };
        }
        Ok(())
    }

    fn extension(&mut self, kind: Extension) -> Result<(), Damage> {
        let held = std::mem::take(&mut self.held);
        match kind {
            Extension::Global => {}
            Extension::LongName => self.pending.path = Some(until_nul(&held).to_vec()),
            Extension::LongLink => self.pending.target = Some(until_nul(&held).to_vec()),
            Extension::Pax => {
                for (key, value) in pax_records(&held)? {
                    match key {
                        b"path" => self.pending.path = Some(value.to_vec()),
                        b"linkpath" => self.pending.target = Some(value.to_vec()),
                        b"size" => self.pending.size = Some(decimal(value)?),
                        _ if key.starts_with(b"GNU.sparse") => return Err(Damage("a sparse entry")),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

fn after(padding: usize) -> State {
    if padding == 0 { State::Header } else { State::Padding { left: padding } }
}

fn split(bytes: &[u8], left: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()))
}

fn padding_of(size: u64) -> usize {
    usize::try_from(size.wrapping_neg() % BLOCK as u64).unwrap_or(0)
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Key and value.
type Record<'a> = (&'a [u8], &'a [u8]);

/// `length key=value\n`, where the length counts the whole record: a value may hold anything.
fn pax_records(mut bytes: &[u8]) -> Result<Vec<Record<'_>>, Damage> {
    const WRONG: Damage = Damage("an attribute record is malformed");
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or(WRONG)?;
        let (digits, _) = bytes.split_at(space);
        let length = usize::try_from(decimal(digits)?).map_err(|_| WRONG)?;
        let (record, rest) = bytes.split_at_checked(length).ok_or(WRONG)?;
        let body = record.get(space + 1..).and_then(|body| body.strip_suffix(b"\n")).ok_or(WRONG)?;
        let equals = body.iter().position(|byte| *byte == b'=').ok_or(WRONG)?;
        let (key, value) = body.split_at(equals);
        records.push((key, value.get(1..).unwrap_or_default()));
        bytes = rest;
    }
    Ok(records)
}

fn decimal(digits: &[u8]) -> Result<u64, Damage> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Damage("a number is malformed"));
    }
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(Damage("a number is too large"))
}

/// One 512-byte header block.
struct Header<'a>(&'a [u8]);

impl Header<'_> {
    fn field(&self, start: usize, length: usize) -> &[u8] {
        self.0.get(start..start + length).unwrap_or_default()
    }

    fn check(&self) -> Result<(), Damage> {
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        let own: u64 = self.field(148, 8).iter().map(|byte| u64::from(*byte)).sum();
        if octal(self.field(148, 8))? == sum - own + 8 * u64::from(b' ') {
            Ok(())
        } else {
            Err(Damage("a header's checksum does not match"))
        }
    }

    fn size(&self) -> Result<u64, Damage> {
        let field = self.field(124, 12);
        match field.split_first() {
            // Base 256, as GNU writes numbers that octal cannot hold.
            Some((0x80, rest)) => rest.iter().try_fold(0_u64, |sum, byte| {
                sum.checked_mul(256).map(|sum| sum | u64::from(*byte)).ok_or(Damage("a number is too large"))
            }),
            _ => octal(field),
        }
    }

    fn flag(&self) -> u8 {
        self.field(156, 1).first().copied().unwrap_or_default()
    }

    fn extension(&self) -> Option<Extension> {
        match self.flag() {
            b'x' => Some(Extension::Pax),
            b'g' => Some(Extension::Global),
            b'L' => Some(Extension::LongName),
            b'K' => Some(Extension::LongLink),
            _ => None,
        }
    }

    fn kind(&self) -> Result<Kind, Damage> {
        match self.flag() {
            b'0' | 0 | b'7' => Ok(Kind::File),
            b'1' => Ok(Kind::HardLink),
            b'5' => Ok(Kind::Directory),
            b'2' | b'3' | b'4' | b'6' => Ok(Kind::Other),
            // Any other kind may have its own idea of where its content ends.
            _ => Err(Damage("an entry of an unknown kind")),
        }
    }

    fn path(&self) -> Vec<u8> {
        let name = until_nul(self.field(0, 100));
        let prefix = until_nul(self.field(345, 155));
        if self.field(257, 6) == b"ustar\0" && !prefix.is_empty() {
            [prefix, b"/", name].concat()
        } else {
            name.to_vec()
        }
    }

    fn target(&self) -> Vec<u8> {
        until_nul(self.field(157, 100)).to_vec()
    }
}

fn octal(field: &[u8]) -> Result<u64, Damage> {
    let digits = field.split(|byte| *byte == 0 || *byte == b' ').find(|digits| !digits.is_empty());
    digits.unwrap_or_default().iter().try_fold(0_u64, |sum, byte| match byte {
        b'0'..=b'7' => {
            sum.checked_mul(8).map(|sum| sum + u64::from(byte - b'0')).ok_or(Damage("a number is too large"))
        }
        _ => Err(Damage("a number is malformed")),
    })
}

#[cfg(test)]
pub(super) mod tests;
