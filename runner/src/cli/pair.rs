//! `pair`: reads a code without ever showing it, redeems it, says what came of it.

use super::{
    Pair,
    exit::{Exit, Failure},
};
use checkfu_runner::{pairing, plane::Address, settings::Settings, state::State};
use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    path::Path,
};

const CODE_BYTES_MAX: u64 = 256;

pub(crate) fn main(state: &State, settings: &Settings, arguments: Pair) -> Result<Exit, Failure> {
    let plane: Address = arguments.plane.parse().map_err(|error| Failure::new(Exit::Usage, error))?;
    let _lock = super::lock(state)?;
    // Who waits at a terminal is told why.
    super::run::log(false);
    let code = pairing::normalised(&read_code(arguments.code_file.as_deref())?)?;
    let host = pairing::this_host();
    let name = arguments.name.unwrap_or_else(|| host.hostname.clone());
    let wish = pairing::Wish { plane, code, name, labels: arguments.labels, host };
    let identity = super::runtime()?.block_on(pairing::pair(
        state,
        wish,
        arguments.ca.or_else(|| settings.path("ca")).as_deref(),
    ))?;
    println!("Paired as {} ({}). Start it with: checkfu-runner run", identity.name, identity.runner_id);
    Ok(Exit::Success)
}

pub(super) fn read_code(file: Option<&Path>) -> Result<String, Failure> {
    let mut code = String::new();
    let read = if let Some(path) = file {
        std::fs::File::open(path).and_then(|file| file.take(CODE_BYTES_MAX).read_to_string(&mut code))
    } else {
        let input = io::stdin();
        if input.is_terminal() {
            print!("Pairing code: ");
            let _ = io::stdout().flush();
            input.read_line(&mut code)
        } else {
            input.take(CODE_BYTES_MAX).read_to_string(&mut code)
        }
    };
    let from = file.map_or_else(|| "standard input".into(), |path| path.display().to_string());
    read.map_err(|error| Failure::new(Exit::Usage, format!("the code cannot be read from {from}: {error}")))?;
    if code.trim().is_empty() {
        let message =
            format!("no pairing code came from {from}; mint one with `checkfu pair` and give it there");
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_no_code_and_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let failure = read_code(Some(file.path())).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message.contains("no pairing code"), "{}", failure.message);
        assert!(failure.message.contains(&file.path().display().to_string()), "{}", failure.message);
    }
}
