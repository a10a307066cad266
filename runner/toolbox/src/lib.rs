//! The toolbox.
