//! Which bytes of a file a reply carries: `offset` and `length`, or a `Range` header, never more than 8 MiB at once.

use crate::http::query::Query;
use axum::http::{HeaderMap, header};
use checkfu_shared::problem::{Code, Problem};

/// The most bytes of one reply.
pub(super) const BYTES_MAX: u64 = 8 << 20;

/// What the caller asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// From a place on, at most so many bytes.
    From { first: u64, length: Option<u64> },
    /// The last bytes.
    Last(u64),
    /// Nothing in particular.
    Whole,
}

/// What a reply carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) first: u64,
    pub(super) length: u64,
    /// Nobody asked for a part, and none is left out.
    pub(super) is_whole: bool,
}

/// Reads the request; the query wins over the header.
///
/// # Errors
/// `invalid_request` when `offset` or `length` is out of bounds.
pub(super) fn asked(query: &Query, headers: &HeaderMap) -> Result<Asked, Problem> {
    let first = query.whole("offset", 0, u64::MAX)?;
    let length = query.whole("length", 1, BYTES_MAX)?;
    if first.is_some() || length.is_some() {
        return Ok(Asked::From { first: first.unwrap_or(0), length });
    }
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    Ok(range.and_then(ranged).unwrap_or(Asked::Whole))
}

/// One range; several, or another unit, may be ignored by the rules of HTTP, and are.
fn ranged(text: &str) -> Option<Asked> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", count) => Some(Asked::Last(count.parse().ok()?)),
        (first, "") => Some(Asked::From { first: first.parse().ok()?, length: None }),
        (first, last) => {
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then(|| Asked::From { first, length: Some((last - first).saturating_add(1)) })
        }
    }
}

/// Cuts the window out of a file of `size` bytes.
///
/// # Errors
/// `range_not_satisfiable` when it lies outside the file.
pub(super) fn cut(asked: &Asked, size: u64) -> Result<Window, Problem> {
    let (first, wanted) = match *asked {
        Asked::Whole => {
            let length = size.min(BYTES_MAX);
            return Ok(Window { first: 0, length, is_whole: length == size });
        }
        Asked::From { first, length } => (first, length.unwrap_or(BYTES_MAX)),
        Asked::Last(0) => return Err(outside(size)),
        Asked::Last(count) => (size.saturating_sub(count), count),
    };
    if first == 0 && size == 0 {
        return Ok(Window { first: 0, length: 0, is_whole: true });
    }
    if first >= size {
        return Err(outside(size));
    }
    Ok(Window { first, length: wanted.min(BYTES_MAX).min(size - first), is_whole: false })
}

fn outside(size: u64) -> Problem {
    let message =
        format!("The window lies outside the file, which has {size} bytes. Ask for an earlier offset.");
    Problem::new(Code::RangeNotSatisfiable, message).with("size_bytes", size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_of_the_header_are_read_and_odd_ones_ignored() {
        for (text, want) in [
            ("bytes=0-9", Some(Asked::From { first: 0, length: Some(10) })),
            ("bytes=5-", Some(Asked::From { first: 5, length: None })),
            ("bytes=-3", Some(Asked::Last(3))),
            ("bytes=0-1,4-5", None),
            ("bytes=9-1", None),
            ("lines=1-2", None),
            ("bytes=0-18446744073709551615", Some(Asked::From { first: 0, length: Some(u64::MAX) })),
        ] {
            assert_eq!(ranged(text), want, "{text}");
        }
    }

    #[test]
    fn a_small_file_comes_whole_and_a_large_one_as_its_first_part() {
        assert_eq!(cut(&Asked::Whole, 5), Ok(Window { first: 0, length: 5, is_whole: true }));
        let large = cut(&Asked::Whole, BYTES_MAX + 1).unwrap();
        assert_eq!((large.length, large.is_whole), (BYTES_MAX, false));
        assert_eq!(cut(&Asked::From { first: 0, length: None }, 0).unwrap().length, 0);
        for asked in [Asked::From { first: 5, length: None }, Asked::Last(0)] {
            assert_eq!(cut(&asked, 5).unwrap_err().code, Code::RangeNotSatisfiable);
        }
        assert_eq!(cut(&Asked::Last(99), 5), Ok(Window { first: 0, length: 5, is_whole: false }));
    }

    proptest! {
        #[test]
        fn windows_put_side_by_side_are_the_file(size in 1u64..(40 << 20), step in 1u64..=BYTES_MAX) {
            let mut at = 0;
            while at < size {
                let window = cut(&Asked::From { first: at, length: Some(step) }, size).unwrap();
                prop_assert_eq!(window.first, at);
                prop_assert!(window.length > 0 && window.length <= BYTES_MAX);
                at += window.length;
            }
            prop_assert_eq!(at, size);
        }
    }
}
