//! The pure core: from a session's state and something that happens, the events that follow. No I/O, no clock, no ids of
//! its own: the time and a mint come in. State changes only by folding events, so it is a function of the log.

pub mod append;
pub mod approval;
pub mod budget;
pub mod claim;
pub mod draft;
pub mod glob;
pub mod grant;
pub mod input;
pub mod pairing;
pub mod permission;
pub mod policy;
pub mod session;
pub mod settlement;

#[cfg(test)]
pub(crate) mod tests;
