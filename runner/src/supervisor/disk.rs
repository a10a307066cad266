//! Whether the disk has room for another session's events. A runner on a full disk takes no work and says so, instead of
//! taking session after session and failing each.

use rustix::fs::statvfs;
use std::path::Path;

/// Each session needs some files of its own.
const INODES_MIN: u64 = 1_000;

/// What a filesystem has left for this user.
#[derive(Debug, Clone, Copy)]
struct Free {
    bytes: u64,
    /// `None` where the filesystem does not count them.
    inodes: Option<u64>,
}

/// Looks at the filesystem of `path`; the sentence says what is missing. A filesystem that cannot be asked counts as usable.
pub(super) fn check(path: &Path, bytes_min: u64) -> Result<(), String> {
    let Ok(found) = statvfs(path) else { return Ok(()) };
    let free = Free {
        bytes: found.f_bavail.saturating_mul(found.f_frsize),
        inodes: (found.f_files > 0).then_some(found.f_favail),
    };
    judge(free, bytes_min).map_err(|what| format!("the disk of {} has only {what}", path.display()))
}

fn judge(free: Free, bytes_min: u64) -> Result<(), String> {
    let mib = |bytes: u64| bytes >> 20;
    if free.bytes < bytes_min {
        return Err(format!(
            "{} MiB left and {} are needed; make room, or lower --min-free-mib",
            mib(free.bytes),
            mib(bytes_min)
        ));
    }
    match free.inodes {
        Some(left) if left < INODES_MIN => {
            Err(format!("room for {left} more files and {INODES_MIN} are needed; remove some"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_files_both_have_to_suffice() {
        for (bytes, inodes, want) in [
            (1 << 30, Some(5_000), None),
            (1 << 30, None, None),
            (256 << 20, None, None),
            ((256 << 20) - 1, Some(5_000), Some("255 MiB left and 256 are needed")),
            (1 << 30, Some(999), Some("999 more files")),
        ] {
            let judged = judge(Free { bytes, inodes }, 256 << 20);
            assert_eq!(judged.is_err(), want.is_some(), "{bytes} {inodes:?}");
            assert!(judged.err().unwrap_or_default().contains(want.unwrap_or_default()));
        }
    }

    #[test]
    fn a_place_that_cannot_be_asked_holds_nothing_up() {
        assert_eq!(check(Path::new("/nowhere/at/all"), u64::MAX), Ok(()));
        assert!(check(&std::env::temp_dir(), u64::MAX).unwrap_err().contains("--min-free-mib"));
    }
}
