//! The shell of a bash call: which program it is, and the script that makes fresh shells feel
//! like one that lasts. Each call restores the thread's state, runs the command and saves the
//! state again when the shell exits, by whatever way.
//! A state file counts only when its last line is the end mark; the caller moves it in place.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Last line of a complete state file.
pub const END_MARK: &str = "#checkfu-end\n";

/// Longest script passed as an argument; Linux allows 128 KiB for one.
const MAX_ARGUMENT_BYTES: usize = 100_000;

/// Which dialect the shell speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// All state carries over.
    Bash,
    /// Only the folder and exported variables carry over.
    Sh,
}

/// A shell found in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its dialect.
    pub dialect: Dialect,
}

/// Looks for bash, then sh, along `search_path` and in the usual places.
#[must_use]
pub fn find(search_path: Option<&str>) -> Option<Shell> {
    let usual = "/bin:/usr/bin:/usr/local/bin";
    for (name, dialect) in [("bash", Dialect::Bash), ("sh", Dialect::Sh)] {
        let folders = search_path.unwrap_or_default().split(':').chain(usual.split(':'));
        for folder in folders.filter(|folder| folder.starts_with('/')) {
            let path = Path::new(folder).join(name);
            let runs = rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok();
            if runs && fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                return Some(Shell { path, dialect });
            }
        }
    }
    None
}

/// Where the state of one thread is kept.
#[derive(Debug, Clone)]
pub struct StateFiles {
    /// The state to restore.
    pub current: PathBuf,
    /// What the running shell writes.
    pub next: PathBuf,
    /// A command too long to be an argument.
    pub command: PathBuf,
}

impl StateFiles {
    /// The files of a thread below the private folder `folder`.
    #[must_use]
    pub fn new(folder: &Path, thread: &str) -> Self {
        let name = crate::spill::file_name(thread);
        let file = |ending: &str| folder.join(format!("{name}.{ending}"));
        Self { current: file("state"), next: file("next"), command: file("command") }
    }

    /// Moves a completely written state in place; an incomplete one is dropped, so that the
    /// state of the call before stays.
    pub fn settle(&self) {
        if complete(&self.next) {
            let _kept_old = fs::rename(&self.next, &self.current);
        } else {
            let _absent = fs::remove_file(&self.next);
        }
    }

    /// Forgets the thread's state.
    pub fn forget(&self) {
        for path in [&self.current, &self.next, &self.command] {
            let _absent = fs::remove_file(path);
        }
    }
}

fn complete(path: &Path) -> bool {
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(path)?;
        let length = i64::try_from(END_MARK.len()).unwrap_or(0);
        file.seek(SeekFrom::End(-length))?;
        let mut end = String::new();
        file.read_to_string(&mut end)?;
        Ok(end)
    };
    read().is_ok_and(|end| end == END_MARK)
}

/// Arguments for the shell that run `command`, restoring and saving state in `state`.
///
/// # Errors
/// When a command too long for an argument cannot be put into a file.
pub fn arguments(
    dialect: Dialect,
    command: &str,
    state: Option<&StateFiles>,
    workspace: &str,
) -> std::io::Result<Vec<String>> {
    let run = match state {
        Some(state) if command.len() > MAX_ARGUMENT_BYTES => {
            fs::write(&state.command, command)?;
            format!(". {}", quote(&state.command.to_string_lossy()))
        }
        _ => format!("eval {}", quote(command)),
    };
    let script = match (dialect, state) {
        (_, None) => run,
        (Dialect::Bash, Some(state)) => bash_script(&run, state, workspace),
        (Dialect::Sh, Some(state)) => sh_script(&run, state),
    };
    Ok(match dialect {
        Dialect::Bash => ["--noprofile", "--norc", "-c", &script, "bash"].map(str::to_owned).to_vec(),
        Dialect::Sh => ["-c", &script, "sh"].map(str::to_owned).to_vec(),
    })
}

fn bash_script(run: &str, state: &StateFiles, workspace: &str) -> String {
    let next = quote(&state.next.to_string_lossy());
    let restore = restore_line(state);
    let workspace = quote(workspace);
    // The command's own EXIT trap replaces ours, so a normal end saves first and says so in `$1`.
    format!(
        r#"{restore}[[ . -ef ${{PWD-.}} ]] || {{ builtin printf 'bash: the folder %s is gone, now in %s\n' "${{PWD-}}" {workspace} >&2; builtin cd -- {workspace}; }}
__checkfu_save() {{ {{ builtin set +o onecmd; builtin printf 'builtin cd -- %q\n' "$PWD"; builtin shopt -p; builtin declare -f; builtin declare -Fx; builtin declare -p; builtin alias -p; builtin umask -p; builtin set +o; builtin printf '#checkfu-end\n'; }} >|{next} 2>/dev/null; }}
trap '[[ ${{1-}} == checkfu-saved ]] || __checkfu_save' EXIT
{run}
builtin set -- checkfu-saved $?
__checkfu_save
builtin exit "$2"
"#
    )
}

fn sh_script(run: &str, state: &StateFiles) -> String {
    let next = quote(&state.next.to_string_lossy());
    let restore = restore_line(state);
    format!(
        r##"{restore}trap '{{ export PWD; export -p; echo '\''cd -- "$PWD"'\''; echo "#checkfu-end"; }} >|{}' EXIT
{run}
"##,
        next.replace('\'', r"'\''")
    )
}

fn restore_line(state: &StateFiles) -> String {
    if state.current.exists() {
        format!(". {} >/dev/null 2>&1\n", quote(&state.current.to_string_lossy()))
    } else {
        String::new()
    }
}

/// One shell word that means `text` literally.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
