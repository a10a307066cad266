//! The built-in tools' names and what both sides must know of them: which only read, and how large a result may be.

use serde::{Deserialize, Serialize};

/// A result of more Unicode scalars than this becomes a `result_truncated` envelope.
pub const RESULT_CHARS_MAX: usize = 100_000;
/// How many scalars of the head, and as many of the tail, the envelope shows.
pub const PREVIEW_CHARS: usize = 8_000;
/// The toolset type of the agents API that carries these tools.
pub const TOOLSET: &str = "agent_toolset_20260401";

/// A built-in tool that runs in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// A shell command with a persistent shell per thread.
    Bash,
    /// Reads a file.
    Read,
    /// Writes a whole file.
    Write,
    /// Replaces text in a file.
    Edit,
    /// Lists files by pattern.
    Glob,
    /// Searches file contents.
    Grep,
}

impl Name {
    /// All built-in tools, in the order they are offered to a model.
    pub const ALL: [Self; 6] = [Self::Bash, Self::Read, Self::Write, Self::Edit, Self::Glob, Self::Grep];

    /// The wire's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Glob => "glob",
            Self::Grep => "grep",
        }
    }

    /// The tool with this name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }

    /// Whether the tool only reads, so that the defaults allow it without asking.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::Read | Self::Glob | Self::Grep)
    }
}
