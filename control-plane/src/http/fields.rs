//! Reads a JSON object member by member, so that every refusal names the member and says what it should be.
//! Decides by the caller's dialect what happens to members nobody took. Never sees a route or a store.

use super::auth::Dialect;
use checkfu_shared::problem::{Code, Problem};
use serde_json::{Map, Value};

/// What a partial update says about one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch<T> {
    /// The member is absent.
    Keep,
    /// The member is `null`.
    Clear,
    /// The member has a value.
    Set(T),
}

impl<T> Patch<T> {
    /// The value after the update of `old`.
    pub fn over(self, old: Option<T>) -> Option<T> {
        match self {
            Self::Keep => old,
            Self::Clear => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// The members of one JSON object that nobody has taken yet.
#[derive(Debug)]
pub struct Fields {
    path: String,
    map: Map<String, Value>,
    dialect: Dialect,
}

/// A refusal of the member at `path`.
#[must_use]
pub fn wrong(path: &str, what: &str) -> Problem {
    Problem::new(Code::InvalidRequest, format!("`{path}` {what}.")).with("field", path)
}

/// A refusal of a feature that is known and not there yet.
#[must_use]
pub fn unsupported(path: &str, what: &str) -> Problem {
    Problem::new(Code::Unsupported, what).with("field", path)
}

impl Fields {
    /// Opens a request body.
    ///
    /// # Errors
    /// `invalid_request` when it is not an object.
    pub fn body(value: Value, dialect: Dialect) -> Result<Self, Problem> {
        match value {
            Value::Object(map) => Ok(Self { path: String::new(), map, dialect }),
            _ => Err(Problem::new(Code::InvalidRequest, "The body must be a JSON object.")),
        }
    }

    /// Opens the object at `path`.
    ///
    /// # Errors
    /// `invalid_request` when it is not an object.
    pub fn of(value: Value, path: &str, dialect: Dialect) -> Result<Self, Problem> {
        match value {
            Value::Object(map) => Ok(Self { path: path.to_owned(), map, dialect }),
            _ => Err(wrong(path, "must be an object")),
        }
    }

    /// Who is asking.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The full path of a member, for messages.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Whether the member is there, `null` included.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    /// Takes a member as it is; `null` is a value here.
    pub fn raw(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name)
    }

    /// Takes a member that is not `null`.
    pub fn value(&mut self, name: &str) -> Option<Value> {
        self.map.remove(name).filter(|value| !value.is_null())
    }

    /// Takes a text.
    ///
    /// # Errors
    /// `invalid_request` when it is something else.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(&self.path(name), "must be a text")),
        }
    }

    /// Takes a text that has to be there, with `min..=max` characters.
    ///
    /// # Errors
    /// `invalid_request` when it is missing, something else, or too short or long.
    pub fn required_text(&mut self, name: &str, min: usize, max: usize) -> Result<String, Problem> {
        let text = self.text(name)?.ok_or_else(|| wrong(&self.path(name), "is required"))?;
        self.sized(name, text, min, max)
    }

    /// Takes a text of at most `max` characters.
    ///
    /// # Errors
    /// `invalid_request` when it is something else or too long.
    pub fn bounded_text(&mut self, name: &str, max: usize) -> Result<Option<String>, Problem> {
        match self.text(name)? {
            Some(text) => self.sized(name, text, 0, max).map(Some),
            None => Ok(None),
        }
    }

    /// Takes a text of at most `max` characters from a partial update.
    ///
    /// # Errors
    /// `invalid_request` when it is something else or too long.
    pub fn patch_text(&mut self, name: &str, max: usize) -> Result<Patch<String>, Problem> {
        if !self.has(name) {
            return Ok(Patch::Keep);
        }
        Ok(self.bounded_text(name, max)?.map_or(Patch::Clear, Patch::Set))
    }

    fn sized(&self, name: &str, text: String, min: usize, max: usize) -> Result<String, Problem> {
        let chars = text.chars().count();
        if (min..=max).contains(&chars) {
            return Ok(text);
        }
        let rule = if max == usize::MAX {
            format!("must have at least {min} characters and has {chars}")
        } else if min == 0 {
            format!("must have at most {max} characters and has {chars}")
        } else {
            format!("must have {min} to {max} characters and has {chars}")
        };
        Err(wrong(&self.path(name), &rule))
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// `invalid_request` when it is something else.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(wrong(&self.path(name), "must be true or false")),
        }
    }

    /// Takes a whole number in `min..=max`.
    ///
    /// # Errors
    /// `invalid_request` when it is something else or outside.
    pub fn whole(&mut self, name: &str, min: u64, max: u64) -> Result<Option<u64>, Problem> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value
            .as_u64()
            .filter(|number| (min..=max).contains(number))
            .map(Some)
            .ok_or_else(|| wrong(&self.path(name), &format!("must be a whole number from {min} to {max}")))
    }

    /// Takes a list of at most `max` entries.
    ///
    /// # Errors
    /// `invalid_request` when it is something else or too long.
    pub fn list(&mut self, name: &str, max: usize) -> Result<Option<Vec<Value>>, Problem> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(entries)) if entries.len() <= max => Ok(Some(entries)),
            Some(Value::Array(entries)) => {
                let rule = format!("may have at most {max} entries and has {}", entries.len());
                Err(wrong(&self.path(name), &rule))
            }
            Some(_) => Err(wrong(&self.path(name), "must be a list")),
        }
    }

    /// Takes a list of at most `max` texts, none of them empty.
    ///
    /// # Errors
    /// `invalid_request` when it is something else or too long.
    pub fn texts(&mut self, name: &str, max: usize) -> Result<Option<Vec<String>>, Problem> {
        let Some(entries) = self.list(name, max)? else { return Ok(None) };
        let text = |(at, entry): (usize, Value)| match entry {
            Value::String(text) if !text.is_empty() => Ok(text),
            _ => Err(wrong(&format!("{}[{at}]", self.path(name)), "must be a text that is not empty")),
        };
        entries.into_iter().enumerate().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// Takes an object, to be read member by member in turn.
    ///
    /// # Errors
    /// `invalid_request` when it is something else.
    pub fn object(&mut self, name: &str) -> Result<Option<Self>, Problem> {
        let path = self.path(name);
        self.value(name).map(|value| Self::of(value, &path, self.dialect)).transpose()
    }

    /// Takes an id.
    ///
    /// # Errors
    /// `invalid_request` when it is malformed.
    pub fn id<T: std::str::FromStr<Err = checkfu_shared::id::Error>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let path = self.path(name);
        self.text(name)?
            .map(|text| text.parse().map_err(|error| wrong(&path, &format!("is {error}"))))
            .transpose()
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// `unknown_field` when something is left and the caller's dialect is strict.
    pub fn end(self) -> Result<(), Problem> {
        match self.map.keys().next() {
            Some(name) if self.dialect == Dialect::Checkfu => {
                let path = self.path(name);
                let shown: String = path.chars().take(100).collect();
                let message =
                    format!("`{shown}` is no field of this request. Check its spelling or leave it out.");
                Err(Problem::new(Code::UnknownField, message).with("field", shown))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn open(value: Value, dialect: Dialect) -> Fields {
        Fields::body(value, dialect).unwrap()
    }

    #[test]
    fn what_is_left_over_is_refused_by_name_for_checkfu_callers_and_ignored_for_sdk_callers() {
        let body = json!({"name": "a", "nmae": 1});
        let mut fields = open(body.clone(), Dialect::Checkfu);
        assert_eq!(fields.text("name"), Ok(Some("a".to_owned())));
        let problem = fields.end().unwrap_err();
        assert_eq!(problem.code, Code::UnknownField);
        assert_eq!(problem.details["field"], "nmae");
        assert_eq!(open(body, Dialect::Sdk).end(), Ok(()));
    }

    #[test]
    fn a_refusal_names_the_nested_member() {
        let mut fields = open(json!({"a": {"b": [1]}}), Dialect::Sdk);
        let problem = fields.object("a").unwrap().unwrap().texts("b", 5).unwrap_err();
        assert_eq!(problem.details["field"], "a.b[0]");
    }

    #[test]
    fn absent_null_and_set_are_three_things_in_a_patch() {
        for (body, want) in [
            (json!({}), Patch::Keep),
            (json!({"t": null}), Patch::Clear),
            (json!({"t": "x"}), Patch::Set("x".to_owned())),
        ] {
            assert_eq!(open(body, Dialect::Sdk).patch_text("t", 3), Ok(want));
        }
        assert!(open(json!({"t": "four"}), Dialect::Sdk).patch_text("t", 3).is_err());
    }
}
