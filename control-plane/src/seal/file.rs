//! Where the master key lives: in the environment, or in a file of the data directory that only its owner reads. A rotation
//! writes the next key beside it before anything is sealed anew, so that a crash at any point leaves a key for every seal.

use super::{Error, Seals, fresh, key_id};
use checkfu_shared::secret::Secret;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// The name of the key's file in the data directory.
pub const FILE: &str = "master.key";
/// The key of a rotation that is under way.
const NEXT: &str = "master.key.next";

/// Opens the seals of a data directory. `given` are keys of the environment, the sealing one first; `sealed` are all seals
/// that exist, which tell whether an interrupted rotation was over.
///
/// # Errors
/// When a file cannot be read or written, others may read it, or what it holds is no key.
pub fn open(dir: &Path, given: &[Secret], sealed: &[String]) -> io::Result<Seals> {
    let mut keys = given.to_vec();
    if given.is_empty() {
        finish_rotation(dir, sealed)?;
        keys.push(match read(&dir.join(FILE))? {
            Some(key) => key,
            None => make(dir, FILE)?,
        });
    } else {
        // Secrets that were sealed before the environment had a key still open, and are sealed anew at the start.
        keys.extend(read(&dir.join(FILE))?);
    }
    Seals::new(&keys).map_err(other)
}

/// Makes the next key, has `reseal` seal everything with it, and puts it in the place of the present one.
///
/// # Errors
/// When a file cannot be written, or `reseal` fails; the present key stays in that case.
pub async fn rotate<E, F>(dir: &Path, seals: &Seals, reseal: impl FnOnce() -> F) -> Result<(), E>
where
    E: From<io::Error>,
    F: Future<Output = Result<(), E>>,
{
    let before = read(&dir.join(FILE))?;
    let next = make(dir, NEXT)?;
    seals.add(&next, true).map_err(other)?;
    if let Err(error) = reseal().await {
        if let Some(before) = before {
            seals.add(&before, true).map_err(other)?;
        }
        return Err(error);
    }
    fs::rename(dir.join(NEXT), dir.join(FILE))?;
    File::open(dir)?.sync_all()?;
    Ok(())
}

fn finish_rotation(dir: &Path, sealed: &[String]) -> io::Result<()> {
    let path = dir.join(NEXT);
    let Some(next) = read(&path)? else { return Ok(()) };
    let id = Seals::new(std::slice::from_ref(&next)).map_err(other)?.current_id();
    if sealed.iter().any(|seal| key_id(seal) == Some(id.as_str())) {
        fs::rename(&path, dir.join(FILE))?;
    } else {
        fs::remove_file(&path)?;
    }
    File::open(dir)?.sync_all()
}

fn read(path: &Path) -> io::Result<Option<Secret>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may read the master key: give its file mode 0600"));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(Some(Secret::new(text.trim())))
}

fn make(dir: &Path, name: &str) -> io::Result<Secret> {
    let (key, path) = (fresh().map_err(other)?, dir.join(name));
    let draft = dir.join(format!("{name}.part"));
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(key.reveal().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&draft, &path)?;
    File::open(dir)?.sync_all()?;
    Ok(key)
}

fn other(error: Error) -> io::Error {
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn secret() -> Secret {
        Secret::new("sk-canary")
    }

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let sealed = open(dir.path(), &[], &[]).unwrap().seal("o", &secret()).unwrap();
        let again = open(dir.path(), &[], std::slice::from_ref(&sealed)).unwrap();
        assert_eq!(again.open("o", &sealed), Ok(secret()));
        let path = dir.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(open(dir.path(), &[], &[]).unwrap_err().to_string().contains("0600"));
    }

    #[test]
    fn the_environments_key_seals_and_the_file_still_opens() {
        let dir = tempfile::tempdir().unwrap();
        let old = open(dir.path(), &[], &[]).unwrap().seal("o", &secret()).unwrap();
        let seals = open(dir.path(), &[fresh().unwrap()], &[]).unwrap();
        assert_eq!(seals.open("o", &old), Ok(secret()));
        assert_ne!(key_id(&seals.seal("o", &secret()).unwrap()), key_id(&old));
    }

    #[tokio::test]
    async fn a_rotation_that_breaks_anywhere_leaves_a_key_for_every_seal() {
        let dir = tempfile::tempdir().unwrap();
        let seals = open(dir.path(), &[], &[]).unwrap();
        let old = seals.seal("o", &secret()).unwrap();
        // Nothing was sealed anew: the present key stays.
        let failed = rotate(dir.path(), &seals, async || Err(io::Error::other("no"))).await;
        assert!(failed.is_err());
        assert_eq!(key_id(&seals.seal("o", &secret()).unwrap()), key_id(&old));
        let again = open(dir.path(), &[], std::slice::from_ref(&old)).unwrap();
        assert_eq!(again.open("o", &old), Ok(secret()));
        assert!(!dir.path().join(NEXT).exists());
        // It was sealed anew, and the process died before the files were changed.
        let next = make(dir.path(), NEXT).unwrap();
        let new = Seals::new(&[next]).unwrap().seal("o", &secret()).unwrap();
        let again = open(dir.path(), &[], std::slice::from_ref(&new)).unwrap();
        assert_eq!(again.open("o", &new), Ok(secret()));
        assert!(!dir.path().join(NEXT).exists());
    }

    #[tokio::test]
    async fn after_a_rotation_the_old_key_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let seals = open(dir.path(), &[], &[]).unwrap();
        let old = seals.seal("o", &secret()).unwrap();
        rotate(dir.path(), &seals, async || Ok::<(), io::Error>(())).await.unwrap();
        let new = seals.seal("o", &secret()).unwrap();
        let again = open(dir.path(), &[], std::slice::from_ref(&new)).unwrap();
        assert_eq!(again.open("o", &new), Ok(secret()));
        assert_eq!(again.open("o", &old), Err(Error::UnknownKey));
    }
}
