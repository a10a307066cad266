//! The flags of the settings, made from the table of keys, and the one place that asks the environment and the disk for them.

use checkfu_runner::{
    config::{self, keys::TABLE},
    settings::{Error, Key, Kind, Said, Settings},
};
use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The settings that were given as flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given(BTreeMap<&'static str, Vec<String>>);

impl Given {
    /// Settles them with environment and file; also tells which file was read.
    pub(crate) fn settled(
        mut self,
        file: Option<&Path>,
        state_dir: Option<String>,
    ) -> Result<(Settings, Option<PathBuf>), Error> {
        self.0.extend(state_dir.map(|dir| ("state_dir", vec![dir])));
        let file = config::read_file(file)?;
        let shown = file.as_ref().map(|(path, text)| (path.display().to_string(), text));
        let ours = |name: &String| {
            name.starts_with(TABLE.prefix) || TABLE.keys.iter().any(|key| key.variable == name)
        };
        let said = Said {
            flags: self.0,
            // A value that is no text cannot be one of ours and is seen as not sound, not as absent.
            environment: std::env::vars_os()
                .map(|(name, value)| {
                    (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
                })
                .filter(|(name, _)| ours(name))
                .collect(),
            file: shown.as_ref().map(|(path, text)| (path.as_str(), text.as_str())),
        };
        Ok((TABLE.settle(&said)?, file.map(|(path, _)| path)))
    }
}

fn argument(key: &'static Key) -> Arg {
    let help = format!("{} [env: {}] [default: {}]", key.about, key.variable, key.default);
    let argument = Arg::new(key.name).long(key.flag).help(help);
    match key.kind {
        Kind::Switch => argument.action(ArgAction::SetTrue),
        kind if kind.is_list() => argument.action(ArgAction::Append).value_name(key.value),
        _ => argument.action(ArgAction::Set).value_name(key.value),
    }
}

/// The state directory is asked for by every command and stands beside the command.
fn flags() -> impl Iterator<Item = &'static Key> {
    TABLE.keys.iter().filter(|key| key.name != "state_dir")
}

impl clap::Args for Given {
    fn augment_args(command: Command) -> Command {
        flags().fold(command, |command, key| command.arg(argument(key)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Self::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for key in flags() {
            if matches.value_source(key.name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let values = if key.kind == Kind::Switch {
                vec![matches.get_flag(key.name).to_string()]
            } else {
                matches.get_many::<String>(key.name).unwrap_or_default().cloned().collect()
            };
            self.0.insert(key.name, values);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches as _};

    fn given(arguments: &[&str]) -> Result<Given, clap::Error> {
        let command = Given::augment_args(Command::new("x"));
        Given::from_arg_matches(&command.try_get_matches_from([&["x"], arguments].concat())?)
    }

    #[test]
    fn every_key_is_a_flag_whose_help_names_its_variable_and_default() {
        let mut command = Given::augment_args(Command::new("x"));
        let help = command.render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for key in flags() {
            assert!(help.contains(&format!("--{}", key.flag)), "{}", key.name);
            assert!(help.contains(key.about), "{}", key.name);
            assert!(
                help.contains(&format!("[env: {}] [default: {}]", key.variable, key.default)),
                "{}",
                key.name
            );
        }
    }

    #[test]
    fn only_what_was_given_counts_and_lists_grow() {
        let given = given(&["--accept-missing-limits", "--label", "a", "--label", "b"]).unwrap();
        let expected = [
            ("accept_missing_limits", vec!["true".to_owned()]),
            ("labels", vec!["a".to_owned(), "b".to_owned()]),
        ];
        assert_eq!(given.0, BTreeMap::from(expected));
    }

    #[test]
    fn a_misspelt_flag_is_answered_with_the_right_one() {
        let error = given(&["--max-session", "3"]).unwrap_err().to_string();
        assert!(error.contains("--max-sessions"), "{error}");
    }
}
