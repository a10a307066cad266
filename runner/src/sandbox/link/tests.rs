//! One connection, spoken with by a toolbox that misbehaves. The daemon is absent here: nothing may depend on it.

use super::*;
use futures_util::stream;
use tokio::io::{AsyncReadExt as _, DuplexStream};

struct Rig {
    line: Line,
    commands: mpsc::Sender<Command>,
    pieces: mpsc::Sender<Result<LogOutput, bollard::errors::Error>>,
    inside: DuplexStream,
    attached: AttachContainerResults,
}

fn rig() -> Rig {
    let client =
        bollard::Docker::connect_with_http("http://127.0.0.1:1", 1, bollard::API_DEFAULT_VERSION).unwrap();
    let (commands, inbox) = mpsc::channel(QUEUE);
    let (pieces, mut queue) = mpsc::channel(64);
    let (input, inside) = tokio::io::duplex(1 << 20);
    let output = stream::poll_fn(move |context| queue.poll_recv(context));
    let line = Line {
        engine: Engine { client },
        name: "none".into(),
        epoch: 1,
        lease_until: Instant::now() + Duration::from_secs(60),
        keep_ms: 1,
        commands: inbox,
        state: watch::channel(State::Opening).0,
        closed: CancellationToken::new(),
    };
    let attached = AttachContainerResults { output: Box::pin(output), input: Box::pin(input) };
    Rig { line, commands, pieces, inside, attached }
}

fn out(bytes: Vec<u8>) -> Result<LogOutput, bollard::errors::Error> {
    Ok(LogOutput::StdOut { message: bytes.into() })
}

fn ready() -> Vec<u8> {
    let ready = FromToolbox::Ready { epoch: 1, version: "t".into(), calls: Vec::new(), warnings: Vec::new() };
    message::encode(&ready, 1).unwrap()
}

async fn run(mut rig: Rig, calls: &mut Calls) -> End {
    rig.line.serve(calls, rig.attached, &mut 0).await
}

#[tokio::test]
async fn hello_goes_first_and_what_came_before_ready_is_passed_over() {
    let rig = rig();
    let (pieces, mut inside) = (rig.pieces.clone(), rig.inside);
    let stale = FromToolbox::Done { call_id: "old".into(), result: Outcome::text("x") };
    let stale = message::encode(&stale, 9).unwrap();
    pieces.send(out(stale.get(stale.len() / 2..).unwrap().to_vec())).await.unwrap();
    pieces.send(out(stale)).await.unwrap();
    pieces.send(out(ready())).await.unwrap();
    let mut state = rig.line.state.subscribe();
    let mut line = rig.line;
    let served = tokio::spawn(async move {
        let mut calls = Calls::new(1);
        line.serve(&mut calls, rig.attached, &mut 0).await
    });
    state.wait_for(|state| matches!(state, State::Ready { .. })).await.unwrap();
    let mut first = vec![0; 24];
    inside.read_exact(&mut first).await.unwrap();
    assert_eq!(first.get(5), Some(&message::KIND_HELLO));
    drop(rig.commands);
    assert!(matches!(served.await.unwrap(), End::Closed));
}

#[tokio::test]
async fn hostile_bytes_end_the_connection_with_a_reason() {
    let mut claim = ready();
    claim.get_mut(16..20).unwrap().copy_from_slice(&u32::MAX.to_be_bytes());
    let uncalled = FromToolbox::Done { call_id: "x".into(), result: Outcome::text("x") };
    for bytes in [vec![b'x'; 100], claim, message::encode(&uncalled, 2).unwrap()] {
        let rig = rig();
        rig.pieces.send(out(ready())).await.unwrap();
        rig.pieces.send(out(bytes)).await.unwrap();
        let ended = run(rig, &mut Calls::new(1)).await;
        assert!(matches!(&ended, End::Hostile(what) if !what.is_empty()));
    }
}

#[tokio::test]
async fn the_end_of_the_stream_is_no_answer() {
    let rig = rig();
    rig.pieces.send(out(ready())).await.unwrap();
    let (answer, mut result) = oneshot::channel();
    let tool = Box::new(Tool::Bash(checkfu_toolbox::call::Bash::default()));
    let command = Command::Call { id: "a".into(), thread: "t".into(), tool, answer };
    rig.commands.send(command).await.unwrap();
    let (pieces, commands) = (rig.pieces.clone(), rig.commands.clone());
    let mut calls = Calls::new(1);
    let Rig { mut line, attached, pieces: last, .. } = rig;
    let mut resets = 0;
    let served = line.serve(&mut calls, attached, &mut resets);
    let ended = async {
        // Once the queue is empty the call has been taken.
        while commands.capacity() < QUEUE {
            tokio::task::yield_now().await;
        }
        drop((pieces, last));
    };
    let (served, ()) = tokio::join!(served, ended);
    assert!(matches!(served, End::Stream));
    assert!(result.try_recv().is_err(), "an answer came from nowhere");
    calls.fail(&Error::Lost);
    assert!(matches!(result.try_recv().unwrap(), Err(Error::Lost)));
}

#[tokio::test]
async fn a_stale_epoch_is_final() {
    let rig = rig();
    let refused =
        FromToolbox::Refused { call_id: None, reason: checkfu_toolbox::message::Refusal::StaleEpoch };
    rig.pieces.send(out(message::encode(&refused, 2).unwrap())).await.unwrap();
    assert!(matches!(run(rig, &mut Calls::new(1)).await, End::Fatal(Error::StaleEpoch)));
}

#[test]
fn partly_written_frames_keep_their_place() {
    let mut unsent = Unsent::default();
    unsent.push(&ToToolbox::Ack { call_id: "a".into() }).unwrap();
    unsent.push(&ToToolbox::Ack { call_id: "b".into() }).unwrap();
    let whole: Vec<u8> = unsent.frames.iter().flatten().copied().collect();
    let mut written = Vec::new();
    while let Some(front) = unsent.frames.front() {
        let piece = front.get(..front.len().min(7)).unwrap().to_vec();
        unsent.wrote(piece.len());
        written.extend(piece);
    }
    assert_eq!(written, whole);
    assert_eq!(unsent.bytes, 0);
}
