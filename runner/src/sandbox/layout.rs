//! The directories that a sandbox has before its first process starts, as the archives that make them.
//! Parents belong to root, so that the sandbox's user can never put a link in the place of a directory we read.

use super::spec::{self, OUTPUTS, WORKSPACE};
use checkfu_shared::environment::Profile;
use std::io;

/// One archive to put below `path`, uncompressed.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) path: &'static str,
    pub(super) tar: Vec<u8>,
}

struct Directory {
    path: &'static str,
    owner: u64,
    mode: u32,
}

/// The archives for a profile, in order. A read-only root takes none: there each writable volume gets its owner.
pub(super) fn uploads(profile: Profile) -> io::Result<Vec<Upload>> {
    if profile == Profile::Locked {
        return spec::volumes(profile)
            .iter()
            .map(|(path, _)| {
                let own = Directory { path: ".", owner: spec::user_id(profile), mode: 0o755 };
                Ok(Upload { path, tar: archive(&[own])? })
            })
            .collect();
    }
    Ok(vec![Upload { path: "/", tar: archive(&directories(profile))? }])
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

fn archive(directories: &[Directory]) -> io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for directory in directories {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(upload: &Upload) -> Vec<(String, u64, u32)> {
        let mut archive = tar::Archive::new(upload.tar.as_slice());
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
        let uploads = uploads(Profile::Standard).unwrap();
        assert_eq!(uploads[0].path, "/");
        let made = entries(&uploads[0]);
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
        assert!(entries(&uploads(Profile::Root).unwrap()[0]).iter().all(|entry| entry.1 == 0));
    }

    #[test]
    fn each_volume_of_a_locked_sandbox_gets_its_owner() {
        let uploads = uploads(Profile::Locked).unwrap();
        assert_eq!(uploads.len(), spec::volumes(Profile::Locked).len());
        for upload in &uploads {
            assert_eq!(entries(upload), [("./".to_owned(), 1000, 0o755)]);
        }
    }
}
