//! Where secrets come from that this host knows of: a file with one a line, and the credentials of proxies.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

const FILE_BYTES_MAX: u64 = 1 << 20;

/// The text of a mask file, one secret a line.
///
/// # Errors
/// When it cannot be read, is no text or too large.
pub fn file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// The passwords of proxies, as they stand there and without their escapes.
#[must_use]
pub fn proxies(environment: impl Iterator<Item = (String, String)>) -> Vec<String> {
    environment
        .filter(|(name, _)| name.to_ascii_uppercase().ends_with("_PROXY"))
        .filter_map(|(_, value)| {
            let rest = value.split_once("://").map_or(value.as_str(), |(_, rest)| rest);
            let (credentials, _) = rest.rsplit_once('@')?;
            Some(credentials.split_once(':')?.1.to_owned())
        })
        .flat_map(|password| [unescaped(&password), password])
        .collect()
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let pair = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_passwords_of_proxies_are_known_with_and_without_escapes() {
        let variables = [
            ("HTTPS_PROXY", "http://user:hunter%32two@proxy:3128"),
            ("http_proxy", "user:plain@proxy"),
            ("NO_PROXY", "localhost,.example.com"),
            ("HTTPS_PROXY_NOT", "http://user:other@x"),
            ("ALL_PROXY", "socks5://proxy:1080"),
        ];
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(proxies(variables), ["hunter2two", "hunter%32two", "plain", "plain"]);
    }

    #[test]
    fn a_mask_file_is_read_as_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        assert!(file(&path).is_err());
        std::fs::write(&path, "one\ntwo\n").unwrap();
        assert_eq!(file(&path).unwrap(), "one\ntwo\n");
        std::fs::write(&path, vec![b'x'; 2 << 20]).unwrap();
        assert!(file(&path).is_err());
    }
}
