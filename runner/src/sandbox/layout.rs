//! The directories that a sandbox has before its first process starts, as the archive that makes them.
//! Parents belong to root, so that the sandbox's user can never put a link in the place of a directory we read.

use super::spec::{self, OUTPUTS, WORKSPACE};
use checkfu_shared::environment::Profile;
use std::io;

struct Directory {
    path: &'static str,
    owner: u64,
    mode: u32,
}

/// The archive to put at the root of a container that was not started yet, uncompressed.
pub(super) fn archive(profile: Profile) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for directory in directories(profile) {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(directory.mode);
        header.set_uid(directory.owner);
        header.set_gid(directory.owner);
        header.set_size(0);
        let path = format!("{}/", directory.path.trim_start_matches('/'));
        tar.append_data(&mut header, path, io::empty())?;
    }
    tar.into_inner()
}

fn directories(profile: Profile) -> Vec<Directory> {
    let user = spec::user_id(profile);
    let ours = |path, owner, mode| Directory { path, owner, mode };
    vec![
        ours("/tmp", 0, 0o1777),
        ours(WORKSPACE, user, 0o755),
        ours(spec::home(profile), user, 0o755),
        ours("/mnt/memory", user, 0o755),
        ours("/mnt/session", 0, 0o755),
        ours(OUTPUTS, user, 0o755),
        ours("/mnt/session/uploads", user, 0o755),
        ours("/.checkfu", 0, 0o755),
        ours("/.checkfu/bin", 0, 0o755),
        ours("/.checkfu/out", user, 0o755),
        ours("/.checkfu/state", user, 0o700),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(profile: Profile) -> Vec<(String, u64, u32)> {
        let bytes = archive(profile).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            assert!(header.entry_type().is_dir());
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            (path, header.uid().unwrap(), header.mode().unwrap())
        });
        entries.collect()
    }

    #[test]
    fn the_user_owns_its_directories_and_not_their_parents() {
        let made = entries(Profile::Standard);
        for (path, owner) in [
            ("workspace/", 1000),
            ("mnt/session/", 0),
            ("mnt/session/outputs/", 1000),
            (".checkfu/", 0),
            (".checkfu/out/", 1000),
            ("home/checkfu/", 1000),
        ] {
            assert!(made.iter().any(|entry| entry.0 == path && entry.1 == owner), "{path} in {made:?}");
        }
    }

    #[test]
    fn root_owns_everything_in_its_profile() {
        assert!(entries(Profile::Root).iter().all(|entry| entry.1 == 0));
    }

    #[test]
    fn every_volume_of_a_locked_sandbox_gets_its_owner() {
        let made = entries(Profile::Locked);
        for (path, _) in spec::volumes(Profile::Locked) {
            let entry = format!("{}/", path.trim_start_matches('/'));
            assert!(made.iter().any(|made| made.0 == entry && made.1 == 1000), "{path}");
        }
    }
}
