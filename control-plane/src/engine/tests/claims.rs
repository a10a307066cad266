//! Claims: offers, leases, fencing, loss.
