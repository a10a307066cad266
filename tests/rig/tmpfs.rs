//! A small disk that a test may fill: a filesystem in memory, mounted for as long as the test looks at it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A mounted filesystem; dropping it unmounts it.
#[derive(Debug)]
pub struct Tmpfs {
    place: PathBuf,
}

impl Tmpfs {
    /// Mounts `mib` MiB over `place`, which keeps what it held. Needs the rights of root, as Docker does.
    ///
    /// # Panics
    /// When it cannot be mounted or the content does not fit.
    #[must_use]
    pub fn over(place: &Path, mib: u32) -> Self {
        let before = place.with_extension("before");
        fs::rename(place, &before).expect("a directory to mount over");
        fs::create_dir(place).expect("a directory");
        let size = format!("size={mib}m,mode=0700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(place));
        let disk = Self { place: place.to_owned() };
        run(Command::new("cp").arg("-a").arg(before.join(".")).arg(place));
        disk
    }

    /// Takes all room but `kib` KiB.
    ///
    /// # Panics
    /// When it cannot.
    pub fn fill(&self, kib: u64) {
        use std::io::Write as _;
        let found = rustix::fs::statvfs(&self.place).expect("a filesystem");
        let mut left = (found.f_bavail * found.f_frsize).saturating_sub(kib << 10);
        let mut ballast = fs::File::create(self.ballast()).expect("a file");
        let piece = vec![0; 64 << 10];
        while left > 0 {
            let size = left.min(piece.len() as u64);
            // Others may write at the same time and take the rest.
            if ballast.write_all(&piece[..usize::try_from(size).expect("small")]).is_err() {
                return;
            }
            left -= size;
        }
    }

    /// Gives the room back.
    pub fn free(&self) {
        let _ = fs::remove_file(self.ballast());
    }

    fn ballast(&self) -> PathBuf {
        self.place.join("ballast")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.place).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().expect("the command");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
