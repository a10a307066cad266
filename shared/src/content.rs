//! Content blocks of messages and tool results, in the wire's form. Never an empty text block: [`Block::is_empty_text`] finds them.

use serde::{Deserialize, Serialize};

/// One block of a message or of a tool result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Plain text, never empty.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Where its bytes are.
        source: Source,
    },
    /// A document such as a PDF.
    Document {
        /// Where its bytes are.
        source: Source,
        /// A title shown to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Context shown to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context: Option<String>,
    },
}

/// Where the bytes of a block are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Source {
    /// In the block itself.
    Base64 {
        /// Such as `image/png`.
        media_type: String,
        /// Standard base64.
        data: String,
    },
    /// Plain text in the block itself.
    Text {
        /// `text/plain`.
        media_type: String,
        /// The text.
        data: String,
    },
    /// At an address that the provider fetches.
    Url {
        /// An https address.
        url: String,
    },
    /// An uploaded file.
    File {
        /// Its id.
        file_id: String,
    },
}

impl Block {
    /// A text block.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Whether it is a text block without text, which providers refuse.
    #[must_use]
    pub fn is_empty_text(&self) -> bool {
        matches!(self, Self::Text { text } if text.is_empty())
    }
}
