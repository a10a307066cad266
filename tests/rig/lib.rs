//! The rig: starts the real pieces a test from outside needs, and stops every one of them again.
//! It holds no assertion about the product itself and no copy of its logic; a test that needs a fact asks the
//! running piece for it. Nothing here sleeps for a result: `wait::until` looks until it is so, or gives up.

pub mod link;
pub mod process;
pub mod scripted_model;
pub mod wait;
