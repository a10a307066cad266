//! Which rows of a registry list to read: newest first, from a cursor on.

use crate::http::query::Query;
use checkfu_shared::{problem::Problem, time::Timestamp};

/// Which rows to read.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Archived ones too.
    pub include_archived: bool,
    /// Only ids that sort before this one.
    pub before_id: Option<String>,
    /// Not created earlier.
    pub created_from_ms: i64,
    /// Created earlier.
    pub created_before_ms: i64,
    /// One more than a page has, to see whether more follow.
    pub rows: i64,
}

impl Filter {
    /// Reads it from the query of a request for `list`.
    ///
    /// # Errors
    /// A refusal naming the parameter that is wrong.
    pub fn read(query: &Query, list: &str, limit: usize) -> Result<Self, Problem> {
        let (from, before) = query.created()?;
        Ok(Self {
            include_archived: query.flag("include_archived")?,
            before_id: query.cursor(list, true)?.map(|cursor| cursor.position),
            created_from_ms: from.map_or(i64::MIN, Timestamp::as_ms),
            created_before_ms: before.map_or(i64::MAX, Timestamp::as_ms),
            rows: i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1),
        })
    }
}
