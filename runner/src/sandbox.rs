//! The container of a session, its limits, its network and its toolbox.
