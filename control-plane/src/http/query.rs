//! Query parameters and list cursors. Unknown parameters are ignored (`?beta=true`); a known one with a bad value is refused by name.

use super::{Plane, fields::wrong, reply::Refusal};
use axum::{extract::FromRequestParts, http::request::Parts};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use checkfu_shared::{
    problem::{Code, Problem},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// The parameters of a request, in their order.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl FromRequestParts<Plane> for Query {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Plane) -> Result<Self, Refusal> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(pairs)| Self(pairs))
            .map_err(|_| Problem::new(Code::InvalidRequest, "The query of the address is malformed.").into())
    }
}

impl Query {
    /// The first value of a parameter; an empty one counts as absent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
    }

    /// All values of a list parameter, `name[]` or `name`.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let matches = move |key: &str| key == name || key.strip_suffix("[]") == Some(name);
        self.0.iter().filter(move |(key, _)| matches(key)).map(|(_, value)| value.as_str())
    }

    /// A whole number in `min..=max`.
    ///
    /// # Errors
    /// `invalid_request` when it is something else or outside.
    pub fn whole(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, Problem> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| wrong(name, &format!("must be a whole number from {min} to {max}")))
    }

    /// `limit`: how many entries a page has.
    ///
    /// # Errors
    /// `invalid_request` when it is no number in `1..=max`.
    pub fn limit(&self, default: usize, max: usize) -> Result<usize, Problem> {
        let limit = self.whole("limit", 1, max as u64)?;
        Ok(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(default))
    }

    /// A boolean.
    ///
    /// # Errors
    /// `invalid_request` when it is neither `true` nor `false`.
    pub fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(wrong(name, "must be true or false")),
        }
    }

    /// An instant.
    ///
    /// # Errors
    /// `invalid_request` when it is none.
    pub fn time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let parse = |text: &str| {
            // A `+` that the caller did not escape arrives as a space.
            text.replace(' ', "+")
                .parse()
                .map_err(|_| wrong(name, "must be a time such as 2026-01-31T23:59:59Z"))
        };
        self.get(name).map(parse).transpose()
    }

    /// The half-open range of `created_at[gte|gt|lte|lt]`: the first instant in it and the first after it.
    ///
    /// # Errors
    /// `invalid_request` when a bound is no instant.
    pub fn created(&self) -> Result<(Option<Timestamp>, Option<Timestamp>), Problem> {
        let bound = |name: &str, plus_ms| -> Result<Option<Timestamp>, Problem> {
            Ok(self.time(name)?.map(|at| at.plus_ms(plus_ms)))
        };
        let from = [bound("created_at[gte]", 0)?, bound("created_at[gt]", 1)?];
        let before = [bound("created_at[lt]", 0)?, bound("created_at[lte]", 1)?];
        Ok((from.into_iter().flatten().max(), before.into_iter().flatten().min()))
    }

    /// `order`: whether the newest comes first.
    ///
    /// # Errors
    /// `invalid_request` when it is neither `asc` nor `desc`.
    pub fn descending(&self, default: bool) -> Result<bool, Problem> {
        match self.get("order") {
            None => Ok(default),
            Some("asc") => Ok(false),
            Some("desc") => Ok(true),
            Some(_) => Err(wrong("order", "must be asc or desc")),
        }
    }

    /// `page`: where the page starts, when the caller continues a list.
    ///
    /// # Errors
    /// `invalid_cursor` when it is no cursor of this list in this order.
    pub fn cursor(&self, list: &str, descending: bool) -> Result<Option<Cursor>, Problem> {
        self.get("page").map(|text| Cursor::read(text, list, descending)).transpose()
    }
}

/// A place between two entries of a list; opaque to callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    list: String,
    descending: bool,
    /// Whether the page lies before the position instead of after it.
    pub backward: bool,
    /// The entry next to the page.
    pub position: String,
}

impl Cursor {
    /// The place after `position`, or before it.
    #[must_use]
    pub fn at(list: &str, descending: bool, backward: bool, position: impl ToString) -> Self {
        Self { list: list.to_owned(), descending, backward, position: position.to_string() }
    }

    /// The text for the caller.
    #[must_use]
    pub fn text(&self) -> String {
        // Three scalars and a text always serialise.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn read(text: &str, list: &str, descending: bool) -> Result<Self, Problem> {
        let wrong = |what: &str| Problem::new(Code::InvalidCursor, what).with("field", "page");
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let cursor: Self = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(|| {
            wrong("`page` is no cursor. Pass on `next_page` or `prev_page` of the former reply unchanged.")
        })?;
        if cursor.list != list {
            return Err(wrong("`page` is the cursor of another list. Start this list without it."));
        }
        if cursor.descending != descending {
            return Err(wrong("`page` belongs to the other `order`. Keep the order while you page."));
        }
        Ok(cursor)
    }
}

/// One page of a list that goes one way.
#[derive(Debug, Serialize)]
pub struct Listed<T> {
    data: Vec<T>,
    next_page: Option<String>,
}

impl<T> Listed<T> {
    /// A page from one entry more than `limit` when there are more.
    pub fn cut(
        mut rows: Vec<T>,
        limit: usize,
        list: &str,
        descending: bool,
        position: impl Fn(&T) -> String,
    ) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| more);
        let next_page = last.map(|row| Cursor::at(list, descending, false, position(row)).text());
        Self { data: rows, next_page }
    }

    /// The whole list.
    pub const fn whole(data: Vec<T>) -> Self {
        Self { data, next_page: None }
    }

    /// The same page with its entries in another form.
    pub fn map<U>(self, shape: impl FnMut(T) -> U) -> Listed<U> {
        Listed { data: self.data.into_iter().map(shape).collect(), next_page: self.next_page }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        let uri = format!("http://x/?{text}").parse().unwrap();
        Query(axum::extract::Query::try_from_uri(&uri).unwrap().0)
    }

    #[test]
    fn list_parameters_come_with_or_without_brackets_escaped_or_not() {
        let query = query("types[]=a&types%5B%5D=b&types=c&type=d&beta=true");
        assert_eq!(query.all("types").collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn a_bad_value_is_refused_by_name() {
        for bad in ["limit=0", "limit=101", "limit=x", "limit=-1", "limit=1.5"] {
            assert_eq!(query(bad).limit(20, 100).unwrap_err().details["field"], "limit", "{bad}");
        }
        assert_eq!(query("limit=100").limit(20, 100), Ok(100));
        assert_eq!(query("").limit(20, 100), Ok(20));
        assert!(query("order=up").descending(true).is_err());
        assert!(query("created_at[gte]=now").created().is_err());
    }

    #[test]
    fn exclusive_bounds_become_half_open_ones() {
        let at = Timestamp::from_ms(1_000);
        let text = "created_at[gt]=1970-01-01T00:00:01Z&created_at[lte]=1970-01-01T00:00:02%2B00:00";
        assert_eq!(query(text).created(), Ok((Some(at.plus_ms(1)), Some(at.plus_ms(1_001)))));
        assert!(query("created_at[gte]=1970-01-01T00:00:01+00:00").created().is_ok());
    }

    #[test]
    fn a_cursor_fits_its_own_list_and_order_only() {
        let text = Cursor::at("agents", true, false, "agent_1").text();
        assert_eq!(Cursor::read(&text, "agents", true).unwrap().position, "agent_1");
        for (text, list, descending) in [
            (text.as_str(), "agents", false),
            (&text, "environments", true),
            ("%%%", "agents", true),
            ("e30", "agents", true),
        ] {
            assert_eq!(Cursor::read(text, list, descending).unwrap_err().code, Code::InvalidCursor);
        }
    }

    #[test]
    fn a_page_names_the_next_one_only_when_there_is_more() {
        let page = Listed::cut(vec![3, 2, 1], 2, "n", true, ToString::to_string);
        assert_eq!(page.data, [3, 2]);
        assert!(page.next_page.is_some());
        assert!(Listed::cut(vec![3, 2], 2, "n", true, ToString::to_string).next_page.is_none());
    }
}
