//! What passes through the door, and what does not.

use super::*;

#[test]
fn nobody_listening_is_no_error_and_a_dead_socket_counts_as_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    assert_eq!(ask(&state, &Ask::Status).unwrap(), None);
    drop(std::os::unix::net::UnixListener::bind(state.join(SOCKET)).unwrap());
    assert_eq!(ask(&state, &Ask::Status).unwrap(), None);
}

#[test]
fn a_directory_with_a_long_path_can_be_asked() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("x".repeat(120));
    let state = State::open(&deep).unwrap();
    let (_directory, path) = short(&state).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let answering = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        let refused = Answer::Refused { why: line.trim().to_owned() };
        (&stream).write_all(&serde_json::to_vec(&refused).unwrap()).unwrap();
    });
    let answer = ask(&state, &Ask::Gc { dry_run: true }).unwrap();
    assert_eq!(answer, Some(Answer::Refused { why: r#"{"ask":"gc","dry_run":true}"#.to_owned() }));
    answering.join().unwrap();
}

#[test]
fn a_daemon_that_hangs_up_is_an_error_and_not_an_empty_answer() {
    let dir = tempfile::tempdir().unwrap();
    let state = State::open(dir.path()).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(state.join(SOCKET)).unwrap();
    let leaving = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
    });
    assert!(ask(&state, &Ask::Drain).is_err());
    leaving.join().unwrap();
}
