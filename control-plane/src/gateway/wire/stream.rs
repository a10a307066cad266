//! One reply that streams: a provider's bytes in, a client's bytes out, in any split. Whatever comes, the client's
//! stream ends with the proper last event of its wire or with an error event, and nothing follows either.

use super::{
    Spoken, Wire, chat, fault::Fault, messages, reply::Label, responses, sequence::Sequence, step::Step,
};
use crate::sse::Decoder;
use checkfu_shared::event::ModelUsage;

/// The state of one streamed reply.
#[derive(Debug)]
pub struct Stream {
    decoder: Decoder,
    reader: Reader,
    sequence: Sequence,
    writer: Writer,
    label: Label,
}

#[derive(Debug)]
enum Reader {
    Messages(messages::stream::Reader),
    Chat(chat::stream::Reader),
}

#[derive(Debug)]
enum Writer {
    Messages(messages::stream::Writer),
    Chat(chat::stream::Writer),
    Responses(Box<responses::stream::Writer>),
}

impl Stream {
    /// A reply of a provider that speaks `from`, for a client that speaks `to`.
    #[must_use]
    pub fn new(from: Spoken, to: Wire, label: Label) -> Self {
        let reader = match from {
            Spoken::Messages => Reader::Messages(messages::stream::Reader::default()),
            Spoken::Chat => Reader::Chat(chat::stream::Reader::new(&label.id)),
        };
        let writer = match to {
            Wire::Messages => Writer::Messages(messages::stream::Writer::default()),
            Wire::Chat => Writer::Chat(chat::stream::Writer::default()),
            Wire::Responses => Writer::Responses(Box::default()),
        };
        Self { decoder: Decoder::default(), reader, sequence: Sequence::default(), writer, label }
    }

    /// Takes the provider's next bytes and gives what they make for the client, which may be nothing.
    pub fn feed(&mut self, bytes: &[u8]) -> String {
        self.read(bytes);
        self.write()
    }

    #[cfg(test)]
    pub(super) fn feed_steps(&mut self, bytes: &[u8], each: impl FnMut(&Step)) {
        self.read(bytes);
        self.sequence.take().iter().for_each(each);
    }

    fn read(&mut self, bytes: &[u8]) {
        let (reader, sequence) = (&mut self.reader, &mut self.sequence);
        self.decoder.feed(bytes, |frame| {
            if !sequence.is_over() {
                match reader {
                    Reader::Messages(reader) => reader.read(&frame, sequence),
                    Reader::Chat(reader) => reader.read(&frame, sequence),
                }
            }
        });
    }

    /// The provider's bytes are at their end: `fault` is why, unless they ended well. A provider that said why it
    /// stopped and then ends has said all on the Chat wire, where not every server sends its last line.
    pub fn finish(&mut self, fault: Option<Fault>) -> String {
        match fault {
            Some(fault) => self.sequence.fail(fault),
            None if matches!(self.reader, Reader::Chat(_)) && self.sequence.has_stopped() => {
                self.sequence.end()
            }
            None => self.sequence.fail(Fault::broken("The model's reply broke off. Ask again.")),
        }
        self.write()
    }

    /// What was counted so far.
    #[must_use]
    pub const fn usage(&self) -> ModelUsage {
        self.sequence.usage()
    }

    /// Whether the reply ended well.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.sequence.is_complete()
    }

    /// Whether nothing can follow, well or not.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.sequence.is_over()
    }

    fn write(&mut self) -> String {
        let mut out = String::new();
        for step in self.sequence.take() {
            self.writer.write(&step, &self.label, &mut out);
        }
        out
    }
}

impl Writer {
    fn write(&mut self, step: &Step, label: &Label, out: &mut String) {
        match self {
            Self::Messages(writer) => writer.write(step, label, out),
            Self::Chat(writer) => writer.write(step, label, out),
            Self::Responses(writer) => writer.write(step, label, out),
        }
    }
}
