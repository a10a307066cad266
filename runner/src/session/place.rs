//! What a session needs of the place where its calls run, beyond the calls themselves. The real one is a container; the
//! simulation has one in memory.

use crate::{
    harness::{Bench, News},
    outputs::{self, Capture, Limits},
};
use std::path::Path;

/// The sandbox of one claim, for as long as the claim is held.
pub trait Place: Bench {
    /// Begins to open the sandbox; [`Bench::open`] waits for it.
    fn begin(&self) -> impl Future<Output = ()> + Send;
    /// Notes that the log tells of a sandbox, so that another one is told as its replacement.
    fn expect_files(&self);
    /// Makes ready to capture outputs, and gives what is new about the sandbox.
    fn for_capture(&self) -> impl Future<Output = News> + Send;
    /// Whether a sandbox is open now.
    fn is_open(&self) -> bool;
    /// Copies the outputs below `spool`; `None` when no sandbox is open.
    fn capture(
        &self,
        spool: &Path,
        limits: Limits,
    ) -> impl Future<Output = Option<Result<Capture, outputs::Error>>> + Send;
    /// Keeps the sandbox under the lease. Never ends.
    fn tend(&self) -> impl Future<Output = ()> + Send;
    /// Ends the sandbox's lease at once: everything in it stands still until another claim speaks to it.
    fn stand_still(&self) -> impl Future<Output = ()> + Send;
    /// Lets go of the sandbox, which stays.
    fn close(&self) -> impl Future<Output = ()> + Send;
    /// Stops the sandbox of a cancelled session.
    fn stop(&self) -> impl Future<Output = ()> + Send;
}
