//! The tool calls of a model: parsed, permitted, dispatched.
