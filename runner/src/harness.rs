//! Drives a session: ask the model, run its calls, append the results, until it is done or stopped.
