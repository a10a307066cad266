//! Where each setting comes from: flags before the environment, the environment before the file, the file before the default.
//! Pure: it is given the texts. What nobody knows is refused with the nearest name, never passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
    path::PathBuf,
    time::Duration,
};

/// What a setting looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text that is not empty.
    Text,
    /// A path.
    Path,
    /// A whole number above zero.
    Count,
    /// Whole seconds.
    Seconds,
    /// True or false.
    Switch,
    /// Network addresses; may be repeated, separated by commas in the environment.
    Addresses,
    /// Texts; may be repeated, separated by commas in the environment.
    Texts,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An address and port of this machine itself.
    Loopback,
}

/// One key of the table that makes the flags, the documentation and the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name in the file.
    pub name: &'static str,
    /// Its flag, without the dashes.
    pub flag: &'static str,
    /// Its environment variable.
    pub variable: &'static str,
    /// How its value is called in help.
    pub value: &'static str,
    /// What it looks like.
    pub kind: Kind,
    /// What holds when nobody says anything, in words.
    pub default: &'static str,
    /// One sentence.
    pub about: &'static str,
}

/// Where a setting came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody said anything.
    Default,
    /// The file.
    File,
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

/// Why settings are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("the configuration file {path} cannot be read: {why}")]
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        why: String,
    },
    /// The file is not TOML.
    #[error("the configuration file {path} is not valid TOML at line {line}: {why}")]
    Syntax {
        /// Which.
        path: String,
        /// Where, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// Nobody knows this name.
    #[error("`{name}` in {place} is no setting{near}")]
    Unknown {
        /// The name.
        name: String,
        /// Where it stands.
        place: String,
        /// The nearest one, as a question.
        near: String,
    },
    /// The value does not fit.
    #[error("`{name}` from {place} cannot be used: {why}")]
    Value {
        /// Which setting.
        name: &'static str,
        /// Where it stands.
        place: String,
        /// Why, without the value.
        why: String,
    },
}

/// What was said, before it is checked.
#[derive(Debug, Clone, Default)]
pub struct Said<'a> {
    /// From the command line, by key name.
    pub flags: BTreeMap<&'static str, Vec<String>>,
    /// The variables that begin with our prefix, and those of the table.
    pub environment: BTreeMap<String, String>,
    /// The file: its path and text.
    pub file: Option<(&'a str, &'a str)>,
}

/// A table of keys and what else may begin with its prefix.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// The keys.
    pub keys: &'static [Key],
    /// What our variables begin with.
    pub prefix: &'static str,
    /// Variables with that prefix which are no settings.
    pub besides: &'static [&'static str],
}

/// One effective setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its value or values; empty when only the default is known, which the key tells in words.
    pub values: Vec<String>,
    /// Where it came from.
    pub source: Source,
}

/// Every key of a table with its effective value, all of them checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<&'static str, Setting>);

impl Kind {
    /// Whether it may be given several times.
    #[must_use]
    pub const fn is_list(self) -> bool {
        matches!(self, Self::Addresses | Self::Texts)
    }

    fn check(self, values: &[String]) -> Result<(), String> {
        if !self.is_list() && values.len() != 1 {
            return Err("it takes one value".to_owned());
        }
        values.iter().try_for_each(|value| self.check_one(value))
    }

    fn check_one(self, value: &str) -> Result<(), String> {
        let sound = match self {
            Self::Text | Self::Path | Self::Texts => !value.trim().is_empty() && !value.contains('\0'),
            Self::Count => value.parse::<NonZeroU32>().is_ok(),
            Self::Seconds => value.parse::<u32>().is_ok(),
            Self::Switch => matches!(value, "true" | "false"),
            Self::Addresses => value.parse::<IpAddr>().is_ok(),
            Self::Choice(words) => words.contains(&value),
            Self::Loopback => value.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback()),
        };
        if sound { Ok(()) } else { Err(self.wanted()) }
    }

    fn wanted(self) -> String {
        match self {
            Self::Text | Self::Path | Self::Texts => "it must not be empty".to_owned(),
            Self::Count => "it must be a whole number above 0".to_owned(),
            Self::Seconds => "it must be whole seconds".to_owned(),
            Self::Switch => "it must be true or false".to_owned(),
            Self::Addresses => "it must be an address such as 10.0.0.7".to_owned(),
            Self::Choice(words) => format!("it must be one of {}", words.join(", ")),
            Self::Loopback => {
                "it must be an address and port of this machine itself, such as 127.0.0.1:9480".to_owned()
            }
        }
    }

    /// A variable's text as values. An empty one counts as not set, as systemd and shells make them.
    fn split(self, text: &str) -> Vec<String> {
        let text = text.trim();
        match self {
            _ if text.is_empty() => Vec::new(),
            Self::Addresses | Self::Texts => {
                text.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
            }
            Self::Switch => vec![
                match text {
                    "1" | "yes" => "true",
                    "0" | "no" => "false",
                    other => other,
                }
                .to_owned(),
            ],
            _ => vec![text.to_owned()],
        }
    }

    /// A value of the file as values, by the file's own types.
    fn typed(self, value: &toml::Value) -> Option<Vec<String>> {
        match (self, value) {
            (Self::Count | Self::Seconds, toml::Value::Integer(number)) => Some(vec![number.to_string()]),
            (Self::Switch, toml::Value::Boolean(on)) => Some(vec![on.to_string()]),
            (Self::Addresses | Self::Texts, toml::Value::Array(all)) => {
                all.iter().map(|one| one.as_str().map(str::to_owned)).collect()
            }
            (Self::Count | Self::Seconds | Self::Switch | Self::Addresses | Self::Texts, _) => None,
            (_, toml::Value::String(text)) => Some(vec![text.clone()]),
            _ => None,
        }
    }
}

impl Table {
    /// Settles every key.
    ///
    /// # Errors
    /// [`Error`] for the first thing that nobody knows or that does not fit.
    pub fn settle(&self, said: &Said<'_>) -> Result<Settings, Error> {
        let file = said.file.map(|(path, text)| self.parse(path, text)).transpose()?.unwrap_or_default();
        for name in said.environment.keys().filter(|name| name.starts_with(self.prefix)) {
            if !self.besides.contains(&name.as_str()) {
                self.known(name, "the environment", |key| key.variable)?;
            }
        }
        let mut settled = BTreeMap::new();
        for key in self.keys {
            let variable = said.environment.get(key.variable).map(|text| key.kind.split(text));
            let found = [
                (Source::Flag, said.flags.get(key.name).cloned(), format!("--{}", key.flag)),
                (Source::Environment, variable.filter(|values| !values.is_empty()), key.variable.to_owned()),
                (Source::File, file.get(key.name).cloned(), said.file.unwrap_or_default().0.to_owned()),
            ]
            .into_iter()
            .find_map(|(source, values, place)| Some((source, values?, place)));
            let setting = match found {
                Some((source, values, place)) => {
                    let refuse = |why| Error::Value { name: key.name, place, why };
                    key.kind.check(&values).map_err(refuse)?;
                    Setting { values, source }
                }
                None => Setting { values: Vec::new(), source: Source::Default },
            };
            settled.insert(key.name, setting);
        }
        Ok(Settings(settled))
    }

    fn parse(&self, path: &str, text: &str) -> Result<BTreeMap<&'static str, Vec<String>>, Error> {
        let table: toml::Table = toml::from_str(text).map_err(|error: toml::de::Error| {
            let upto = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.as_bytes()[..upto].iter().filter(|byte| **byte == b'\n').count();
            Error::Syntax { path: path.to_owned(), line, why: error.message().to_owned() }
        })?;
        let mut found = BTreeMap::new();
        for (name, value) in &table {
            let key = self.known(name, path, |key| key.name)?;
            let values = key.kind.typed(value).ok_or_else(|| Error::Value {
                name: key.name,
                place: path.to_owned(),
                why: match key.kind {
                    kind if kind.is_list() => "it must be a list of texts in [ ]".to_owned(),
                    Kind::Count | Kind::Seconds => "it must be a whole number without quotes".to_owned(),
                    Kind::Switch => "it must be true or false without quotes".to_owned(),
                    _ => "it must be a text in quotes".to_owned(),
                },
            })?;
            found.insert(key.name, values);
        }
        Ok(found)
    }

    fn known(&self, name: &str, place: &str, part: fn(&Key) -> &'static str) -> Result<&'static Key, Error> {
        if let Some(key) = self.keys.iter().find(|key| part(key) == name) {
            return Ok(key);
        }
        let distance = |key: &Key| strsim::damerau_levenshtein(part(key), name);
        let nearest = self.keys.iter().map(|key| (distance(key), part(key))).min();
        let near = nearest
            .filter(|(distance, near)| *distance <= near.len().div_ceil(3))
            .map(|(_, near)| format!("; did you mean `{near}`?"));
        let near = near.unwrap_or_else(|| "; `config example` lists them all".to_owned());
        let name = name.chars().filter(|c| !c.is_control()).take(100).collect();
        Err(Error::Unknown { name, place: place.to_owned(), near })
    }

    /// A file with every key, each explained and commented out.
    #[must_use]
    pub fn example(&self) -> String {
        let mut text = String::new();
        for key in self.keys {
            let example = match key.kind {
                Kind::Count => "4".to_owned(),
                Kind::Seconds => "240".to_owned(),
                Kind::Switch => "true".to_owned(),
                Kind::Addresses => "[\"10.0.0.7\"]".to_owned(),
                Kind::Texts => "[\"gpu\"]".to_owned(),
                Kind::Choice(words) => format!("\"{}\"", words.last().unwrap_or(&"")),
                Kind::Loopback => "\"127.0.0.1:9480\"".to_owned(),
                Kind::Text | Kind::Path => format!("\"{}\"", key.value),
            };
            text.push_str(&format!(
                "# {}\n# Default: {}. Flag: --{}. Environment: {}.\n#{} = {example}\n\n",
                key.about, key.default, key.flag, key.variable, key.name
            ));
        }
        text
    }
}

impl Settings {
    /// One key's effective setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.0.get(name)
    }

    /// All values of one key.
    #[must_use]
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.get(name).map(|setting| setting.values.clone()).unwrap_or_default()
    }

    /// The value of one key; `None` when the default holds.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.values.first().cloned()
    }

    /// A path.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// Anything that is written as text.
    #[must_use]
    pub fn parsed<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.text(name).as_deref() == Some("true")
    }

    /// A duration of whole seconds.
    #[must_use]
    pub fn seconds(&self, name: &str) -> Option<Duration> {
        self.parsed(name).map(Duration::from_secs)
    }

    /// The names of all keys, for checks.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&'static str> {
        self.0.keys().copied().collect()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

#[cfg(test)]
mod tests;
