//! The model gateway: a claim's capability comes in, the provider's real key goes out, and what passes is counted.
//! It decides nothing about a session and writes no event; the engine judges capabilities and keeps the counts.

pub mod budget;
pub mod meter;
pub mod provider;
mod relay;
pub mod request;
