//! Entry of the toolbox binary: which of its parts this process is.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use checkfu_toolbox::supervise::Places;
use checkfu_toolbox::{forward, serve, supervise};

const USAGE: &str = "usage: checkfu-toolbox [serve ROOT WORKSPACE | forward ADDRESS:PORT SOCKET | --version]";

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the command line answers to its caller")]
fn main() -> ExitCode {
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let places = |root: &str, workspace: &str| Places {
        root: PathBuf::from(root),
        workspace: PathBuf::from(workspace),
    };
    let ended = match words.as_slice() {
        [] => serve::run(places("/.checkfu", "/workspace")),
        ["serve", root, workspace] => serve::run(places(root, workspace)),
        ["supervise", root, workspace] => supervise::run(places(root, workspace)),
        ["forward", listen, socket] => match listen.parse() {
            Ok(listen) => forward::run(listen, Path::new(socket)),
            Err(error) => Err(std::io::Error::other(error)),
        },
        ["--version"] => {
            println!("checkfu-toolbox {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        _ => Err(std::io::Error::other(USAGE)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("checkfu-toolbox: {error}");
            ExitCode::FAILURE
        }
    }
}
