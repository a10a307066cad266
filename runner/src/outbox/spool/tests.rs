//! The spool against crashes at any byte, and against a plain list as its model.

use super::*;
use proptest::prelude::*;

fn event(index: u64, length: usize) -> Vec<u8> {
    let mut event = format!("{{\"n\":{index}}}").into_bytes();
    event.resize(event.len() + length, b' ');
    event
}

fn all(spool: &Spool) -> Vec<Vec<u8>> {
    spool.peek(usize::MAX, usize::MAX).unwrap().events
}

#[derive(Debug, Clone)]
enum Act {
    Append(Vec<usize>),
    Acknowledge(prop::sample::Index),
    Reopen,
    Crash(prop::sample::Index),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => prop::collection::vec(0usize..60, 1..5).prop_map(Act::Append),
        2 => any::<prop::sample::Index>().prop_map(Act::Acknowledge),
        1 => Just(Act::Reopen),
        1 => any::<prop::sample::Index>().prop_map(Act::Crash),
    ];
    prop::collection::vec(act, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_spool_is_a_list_whose_front_is_acknowledged(acts in acts(), segment_bytes in 1u64..300) {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open_with(dir.path(), 0, segment_bytes).unwrap();
        let (mut log, mut acked): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        for act in acts {
            match act {
                Act::Append(lengths) => {
                    let events: Vec<_> =
                        (log.len() as u64..).zip(lengths).map(|(index, length)| event(index, length)).collect();
                    spool.append(&events).unwrap();
                    log.extend(events);
                }
                Act::Acknowledge(index) => {
                    acked += index.index(log.len() - acked + 1);
                    prop_assert!(spool.acknowledge(acked as u64).unwrap());
                }
                Act::Reopen => spool = Spool::open_with(dir.path(), acked as u64, segment_bytes).unwrap(),
                Act::Crash(cut) => {
                    // A write that was under way: some bytes of the next frames, never all of them.
                    let mut frames = Vec::new();
                    frame::encode(log.len() as u64, &event(log.len() as u64, 9), &mut frames);
                    let torn = &frames[..cut.index(frames.len())];
                    let last = spool.segments.back_mut();
                    if let Some(last) = last {
                        last.file.write_all(torn).unwrap();
                    }
                    spool = Spool::open_with(dir.path(), acked as u64, segment_bytes).unwrap();
                }
            }
            prop_assert_eq!(spool.next(), log.len() as u64);
            prop_assert_eq!(spool.acked(), acked as u64);
            prop_assert_eq!(all(&spool), log[acked..].to_vec());
            let wanted: usize = log[acked..].iter().map(|event| event.len() + HEADER_BYTES).sum();
            prop_assert_eq!(spool.unacked_bytes(), wanted as u64);
        }
    }
}

#[test]
fn a_file_cut_or_changed_at_any_byte_keeps_exactly_the_frames_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 0).unwrap();
    let events: Vec<_> = (0..4).map(|index| event(index, 3)).collect();
    spool.append(&events).unwrap();
    let path = segment_path(dir.path(), 0);
    let whole = fs::read(&path).unwrap();
    let frame_bytes = whole.len() / 4;
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x20;
        for content in [&whole[..at], &flipped[..]] {
            fs::write(&path, content).unwrap();
            let spool = Spool::open(dir.path(), 0).unwrap();
            assert_eq!(all(&spool), events[..at / frame_bytes], "at byte {at}");
            assert_eq!(spool.next(), (at / frame_bytes) as u64);
        }
    }
}

#[test]
fn a_disk_that_lost_what_the_log_has_goes_on_behind_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 0).unwrap();
    spool.append(&[event(0, 0), event(1, 0)]).unwrap();
    let mut spool = Spool::open(dir.path(), 7).unwrap();
    assert_eq!((spool.next(), spool.acked(), all(&spool).len()), (7, 7, 0));
    spool.append(&[event(7, 0)]).unwrap();
    assert_eq!(all(&Spool::open(dir.path(), 7).unwrap()), [event(7, 0)]);
}

#[test]
fn a_position_outside_the_spool_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open_with(dir.path(), 0, 1).unwrap();
    spool.append(&[event(0, 0)]).unwrap();
    spool.append(&[event(1, 0)]).unwrap();
    spool.append(&[event(2, 0)]).unwrap();
    assert!(spool.acknowledge(2).unwrap());
    assert!(!spool.acknowledge(4).unwrap());
    assert!(!spool.acknowledge(0).unwrap(), "its segment is gone");
    assert_eq!(all(&spool), [event(2, 0)]);
}

#[test]
fn a_batch_keeps_to_its_limits_but_never_starves() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), 0).unwrap();
    spool.append(&(0..10).map(|index| event(index, 100)).collect::<Vec<_>>()).unwrap();
    assert_eq!(spool.peek(usize::MAX, 3).unwrap().events.len(), 3);
    assert_eq!(spool.peek(250, 100).unwrap().events.len(), 2);
    assert_eq!(spool.peek(1, 100).unwrap().events.len(), 1);
}

#[test]
fn only_the_owner_may_read_what_a_session_said() {
    use std::os::unix::fs::MetadataExt as _;
    let dir = tempfile::tempdir().unwrap();
    Spool::open(dir.path(), 0).unwrap().append(&[event(0, 0)]).unwrap();
    assert_eq!(fs::metadata(segment_path(dir.path(), 0)).unwrap().mode() & 0o777, 0o600);
}
