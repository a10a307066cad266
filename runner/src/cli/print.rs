//! The two output streams. A reader that is gone has seen enough: that ends the output, not the program. The macros take the
//! place of the standard ones, which would panic then.

use super::exit::{Exit, Failure};
use std::{
    io::{self, Write as _},
    sync::OnceLock,
};

/// The first failure of standard output that is not its reader's leaving.
static FAILED: OnceLock<String> = OnceLock::new();

macro_rules! print {
    ($($arg:tt)*) => { $crate::cli::print::out(format!($($arg)*).as_bytes()) };
}

macro_rules! println {
    ($($arg:tt)*) => { $crate::cli::print::out(format!("{}\n", format_args!($($arg)*)).as_bytes()) };
}

macro_rules! eprintln {
    ($($arg:tt)*) => { $crate::cli::print::err(&format!("{}\n", format_args!($($arg)*))) };
}

/// Writes to standard output at once.
pub(super) fn out(bytes: &[u8]) {
    write(&mut io::stdout().lock(), bytes, &FAILED);
}

/// Writes to standard error; there is nowhere left to say that this failed.
pub(super) fn err(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Why the output is not whole, unless its reader left.
pub(super) fn failed() -> Option<Failure> {
    let why = FAILED.get()?;
    Some(Failure::new(Exit::Failure, format!("the output cannot be written: {why}")))
}

fn write(stream: &mut impl io::Write, bytes: &[u8], failed: &OnceLock<String>) {
    match stream.write_all(bytes).and_then(|()| stream.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = failed.set(error.to_string());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(io::ErrorKind);

    impl io::Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_failure_and_a_full_disk_is() {
        for (kind, fails) in [(io::ErrorKind::BrokenPipe, false), (io::ErrorKind::StorageFull, true)] {
            let failed = OnceLock::new();
            write(&mut Broken(kind), b"x", &failed);
            assert_eq!(failed.get().is_some(), fails, "{kind}");
        }
    }
}
