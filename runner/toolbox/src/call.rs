//! What a tool call asks for and what it answers, as both ends of the attach see it.
//! Pure data: nothing here runs a call.

use serde::{Deserialize, Serialize};

/// Time a bash call gets when it names none, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 120_000;
/// Longest time a bash call may ask for, in milliseconds.
pub const MAX_TIMEOUT_MS: u64 = 30 * 60 * 1000;

/// One tool with its input, in the names and fields the model uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", content = "input", rename_all = "snake_case")]
pub enum Tool {
    /// Run a shell command in the thread's shell.
    Bash(Bash),
    /// Read a file as numbered lines, an image or a document.
    Read(Read),
    /// Replace or create a file.
    Write(Write),
    /// Replace text in a file.
    Edit(Edit),
    /// List paths that match a pattern, newest first.
    Glob(Glob),
    /// Search file contents.
    Grep(Grep),
}

/// Input of `bash`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bash {
    /// The command; may be absent when `restart` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Forget the thread's shell state and end its background processes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<bool>,
    /// Milliseconds; absent or 0 = [`DEFAULT_TIMEOUT_MS`], cut to [`MAX_TIMEOUT_MS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl Bash {
    /// The time limit that applies, in milliseconds.
    #[must_use]
    pub fn effective_timeout_ms(&self) -> u64 {
        match self.timeout_ms {
            None | Some(0) => DEFAULT_TIMEOUT_MS,
            Some(asked) => asked.min(MAX_TIMEOUT_MS),
        }
    }
}

/// Input of `read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Relative paths resolve against the workspace.
    pub file_path: String,
    /// First and last line, 1-based and inclusive; an end of 0 or less means the end of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_range: Option<[i64; 2]>,
}

/// Input of `write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Relative paths resolve against the workspace.
    pub file_path: String,
    /// The whole new content.
    pub content: String,
}

/// Input of `edit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// Relative paths resolve against the workspace.
    pub file_path: String,
    /// Must occur exactly once unless `replace_all` is set.
    pub old_string: String,
    /// What takes its place.
    pub new_string: String,
    /// Replace every occurrence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_all: Option<bool>,
}

/// Input of `glob`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glob {
    /// A pattern with `*`, `**`, `?`, `[..]` and `{a,b}`.
    pub pattern: String,
    /// Where to look; the workspace when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Input of `grep`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grep {
    /// A regular expression in Rust syntax.
    pub pattern: String,
    /// A file or folder; the workspace when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Why a tool input was not accepted; the text is meant for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolInputError {
    /// No tool of that name runs in the sandbox.
    #[error("there is no sandbox tool named {name:?}; use bash, read, write, edit, glob or grep")]
    UnknownTool {
        /// The name that was asked for.
        name: String,
    },
    /// The input does not fit the tool.
    #[error("the input of {name} is not valid: {detail}; correct the input and call {name} again")]
    Input {
        /// The tool.
        name: String,
        /// What is wrong with the input.
        detail: String,
    },
}

impl Tool {
    /// Reads the name and input of a tool use as the model wrote them.
    ///
    /// # Errors
    /// [`ToolInputError`] when there is no such tool or the input does not fit it.
    pub fn from_use(name: &str, input: &serde_json::Value) -> Result<Self, ToolInputError> {
        fn typed<T: serde::de::DeserializeOwned>(
            name: &str,
            input: &serde_json::Value,
        ) -> Result<T, ToolInputError> {
            T::deserialize(input)
                .map_err(|error| ToolInputError::Input { name: name.to_owned(), detail: error.to_string() })
        }
        Ok(match name {
            "bash" => {
                let bash: Bash = typed(name, input)?;
                if bash.command.is_none() && bash.restart != Some(true) {
                    let detail = "it needs `command`, or `restart: true`".to_owned();
                    return Err(ToolInputError::Input { name: name.to_owned(), detail });
                }
                Self::Bash(bash)
            }
            "read" => Self::Read(typed(name, input)?),
            "write" => Self::Write(typed(name, input)?),
            "edit" => Self::Edit(typed(name, input)?),
            "glob" => Self::Glob(typed(name, input)?),
            "grep" => Self::Grep(typed(name, input)?),
            _ => return Err(ToolInputError::UnknownTool { name: name.to_owned() }),
        })
    }

    /// The name the model uses.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Bash(_) => "bash",
            Self::Read(_) => "read",
            Self::Write(_) => "write",
            Self::Edit(_) => "edit",
            Self::Glob(_) => "glob",
            Self::Grep(_) => "grep",
        }
    }
}

/// One content block of a result. No text block is ever empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// Never empty.
        text: String,
    },
    /// An image.
    Image {
        /// For example `image/png`.
        media_type: String,
        /// Standard base64 with padding.
        data_base64: String,
    },
    /// A document.
    Document {
        /// For example `application/pdf`.
        media_type: String,
        /// Standard base64 with padding.
        data_base64: String,
        /// The file name, when known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
    },
}

/// What stands in for a result beyond the bound. Its JSON form, with
/// `"type":"result_truncated"`, is the text the model gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "result_truncated")]
pub struct Truncated {
    /// Bytes of the whole result.
    pub total_bytes: u64,
    /// Unicode scalars of the whole result, after lossy decoding.
    pub total_chars: u64,
    /// The first scalars.
    pub preview_head: String,
    /// The last scalars.
    pub preview_tail: String,
    /// Where the whole lies while the sandbox lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive_only_path: Option<String>,
    /// What the model should know and do next.
    pub note: String,
}

/// How a call ended. Flags are independent: a call may be over its time and out of memory.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one call")]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Exit code of the direct child; 128 + signal is not synthesised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended the direct child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The time limit ended the call.
    pub timed_out: bool,
    /// A cancel, or the end of the sandbox's keep time, ended the call.
    pub cancelled: bool,
    /// Whether processes of the call may have been started; false = certainly no side effect.
    pub started: bool,
    /// Out-of-memory kills in the sandbox while the call ran.
    pub oom_kills: u64,
    /// Wall-clock milliseconds.
    pub duration_ms: u64,
    /// Bytes of output seen, kept or not.
    pub bytes_seen: u64,
    /// Processes of the call that still run.
    pub background: u32,
    /// Whether the model should see the result as an error.
    pub is_error: bool,
    /// What the model sees; never empty.
    pub content: Vec<Block>,
    /// Set when `content` is only the envelope of a larger result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncated>,
}

impl Outcome {
    /// A plain text answer; an empty text becomes `(no output)`.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.is_empty() {
            "(no output)".clone_into(&mut text);
        }
        Self { started: true, content: vec![Block::Text { text }], ..Self::default() }
    }

    /// An error the model reads.
    #[must_use]
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_uses_are_read_in_the_models_own_fields() {
        let tool = Tool::from_use("read", &serde_json::json!({"file_path": "a", "view_range": [1, -1]}));
        assert_eq!(tool, Ok(Tool::Read(Read { file_path: "a".into(), view_range: Some([1, -1]) })));
        let tool = Tool::from_use("bash", &serde_json::json!({"restart": true}));
        assert!(matches!(tool, Ok(Tool::Bash(Bash { restart: Some(true), .. }))));
    }

    #[test]
    fn bad_tool_uses_say_what_to_do() {
        for (name, input, part) in [
            ("bash", serde_json::json!({}), "needs `command`"),
            ("write", serde_json::json!({"file_path": "a"}), "missing field `content`"),
            ("fly", serde_json::json!({}), "use bash, read"),
        ] {
            let text = Tool::from_use(name, &input).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn time_limits_have_a_default_and_a_ceiling() {
        for (asked, given) in [
            (None, DEFAULT_TIMEOUT_MS),
            (Some(0), DEFAULT_TIMEOUT_MS),
            (Some(5), 5),
            (Some(u64::MAX), MAX_TIMEOUT_MS),
        ] {
            assert_eq!(Bash { timeout_ms: asked, ..Bash::default() }.effective_timeout_ms(), given);
        }
    }

    #[test]
    fn the_envelope_names_its_type() {
        let truncated = Truncated {
            total_bytes: 1,
            total_chars: 1,
            preview_head: "a".into(),
            preview_tail: "b".into(),
            alive_only_path: None,
            note: "n".into(),
        };
        let text = serde_json::to_string(&truncated).unwrap();
        assert!(text.starts_with(r#"{"type":"result_truncated""#), "{text}");
        assert_eq!(serde_json::from_str::<Truncated>(&text).unwrap(), truncated);
    }
}
