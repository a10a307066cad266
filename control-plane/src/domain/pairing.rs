//! Pairing codes: their shape, and what a try at one comes to. A code is 4 selector and 8 secret letters of an alphabet
//! without look-alikes; the secret is never stored.

use checkfu_shared::{
    problem::{Code, Problem},
    time::Timestamp,
};

const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";
/// So many wrong secrets burn a code.
pub const MISSES_MAX: u32 = 5;
/// So many wrong codes a minute are heard from one source.
pub const SOURCE_MISSES_MAX: u32 = 5;

/// A code in its two parts, upper case.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCode {
    /// Finds the row.
    pub selector: String,
    /// Proves that the code was seen.
    pub secret: String,
}

impl std::fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PairingCode").field("selector", &self.selector).finish_non_exhaustive()
    }
}

impl PairingCode {
    /// The code of these random bytes.
    #[must_use]
    pub fn from_random(bytes: [u8; 12]) -> Self {
        let text: String = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect();
        Self { selector: text[..4].to_owned(), secret: text[4..].to_owned() }
    }

    /// Reads a code as typed: case, dashes and spaces do not matter.
    #[must_use]
    pub fn parse(typed: &str) -> Option<Self> {
        let text: String =
            typed.chars().filter(|c| !matches!(c, '-' | ' ')).map(|c| c.to_ascii_uppercase()).collect();
        let fits = text.len() == 12 && text.bytes().all(|byte| ALPHABET.contains(&byte));
        fits.then(|| Self { selector: text[..4].to_owned(), secret: text[4..].to_owned() })
    }

    /// The form to show: `SSSS-XXXX-XXXX`.
    #[must_use]
    pub fn show(&self) -> String {
        format!("{}-{}-{}", self.selector, &self.secret[..4], &self.secret[4..])
    }
}

/// A pairing's row, as far as a try must know it.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Wrong secrets so far.
    pub misses: u32,
    /// When the code stops being good.
    pub expires_at: Timestamp,
    /// The key that redeemed it.
    pub redeemed_by: Option<String>,
}

/// What a try comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Try {
    /// The code is good and unused.
    Redeem,
    /// The same key redeemed it before: the same answer again.
    Repeat,
    /// The secret is wrong: count it.
    Miss,
}

/// Decides one try at a code.
///
/// # Errors
/// [`Code::PairingCodeInvalid`] for a burnt code or another key, [`Code::PairingCodeExpired`] past its time.
pub fn judge(row: &Offered, secret_fits: bool, public_key: &str, now: Timestamp) -> Result<Try, Problem> {
    if row.misses >= MISSES_MAX {
        return Err(Problem::new(
            Code::PairingCodeInvalid,
            "The pairing code was tried with wrong letters too often and is burnt. Ask for a new code.",
        ));
    }
    if !secret_fits {
        return Ok(Try::Miss);
    }
    if now >= row.expires_at {
        return Err(Problem::new(
            Code::PairingCodeExpired,
            "The pairing code is past its time. Ask for a new code.",
        ));
    }
    match row.redeemed_by.as_deref() {
        None => Ok(Try::Redeem),
        Some(key) if key == public_key => Ok(Try::Repeat),
        Some(_) => Err(Problem::new(
            Code::PairingCodeInvalid,
            "The pairing code was used by another runner. Ask for a new code.",
        )),
    }
}

/// The refusal of a code that does not exist or whose secret is wrong; it does not tell which.
#[must_use]
pub fn wrong() -> Problem {
    Problem::new(
        Code::PairingCodeInvalid,
        "The pairing code is not valid. Check it letter by letter, or ask for a new code.",
    )
}

/// Where throttling counts an address: a whole IPv4 address or an IPv6 /64.
#[must_use]
pub fn source(address: std::net::IpAddr) -> String {
    match address.to_canonical() {
        std::net::IpAddr::V4(v4) => v4.to_string(),
        std::net::IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_code_survives_being_shown_and_typed_back(bytes: [u8; 12]) {
            let code = PairingCode::from_random(bytes);
            prop_assert_eq!(PairingCode::parse(&code.show().to_lowercase()), Some(code));
        }
    }

    #[test]
    fn a_code_is_judged_by_misses_then_secret_then_time_then_key() {
        let now = Timestamp::from_ms(100);
        let row = |misses, expires, key: Option<&str>| Offered {
            misses,
            expires_at: Timestamp::from_ms(expires),
            redeemed_by: key.map(str::to_owned),
        };
        let code = |row: Offered, fits| judge(&row, fits, "k", now).map_err(|problem| problem.code);
        assert_eq!(code(row(0, 200, None), true), Ok(Try::Redeem));
        assert_eq!(code(row(4, 200, Some("k")), true), Ok(Try::Repeat));
        assert_eq!(code(row(4, 200, None), false), Ok(Try::Miss));
        assert_eq!(code(row(5, 200, None), true), Err(Code::PairingCodeInvalid));
        assert_eq!(code(row(0, 100, None), true), Err(Code::PairingCodeExpired));
        assert_eq!(code(row(0, 200, Some("other")), true), Err(Code::PairingCodeInvalid));
    }

    #[test]
    fn addresses_of_one_network_share_a_source() {
        let of = |text: &str| source(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::1"), of("2001:db8:1:2::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
