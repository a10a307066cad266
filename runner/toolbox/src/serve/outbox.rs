//! What waits to be written to the runner. A thread of its own writes, so a runner that stops
//! reading never holds up a call; what does not fit is not taken and its owner tries again.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that may wait; one message more is always taken when nothing waits.
const MAX_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    starved: bool,
}

/// Handle to the writing thread.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    shared: Arc<(Mutex<Queue>, Condvar)>,
}

impl Outbox {
    /// Starts the writer. `room` is called after something was refused, once there is room.
    pub(super) fn start(
        mut to: impl Write + Send + 'static,
        room: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let outbox = Self { shared };
        let writer = outbox.clone();
        // The thread lives as long as the process and may be blocked in a write for ever.
        std::thread::Builder::new().name("writer".into()).spawn(move || {
            loop {
                let (message, starved) = writer.take();
                // A runner that is gone reads nothing; the next one asks for what it missed.
                let _nobody_reads = to.write_all(&message).and_then(|()| to.flush());
                if starved {
                    room();
                }
            }
        })?;
        Ok(outbox)
    }

    /// Queues a message; false when there is no room.
    pub(super) fn offer(&self, message: Vec<u8>) -> bool {
        let mut queue = self.lock();
        if !queue.messages.is_empty() && queue.bytes + message.len() > MAX_BYTES {
            queue.starved = true;
            return false;
        }
        queue.bytes += message.len();
        queue.messages.push_back(message);
        drop(queue);
        self.shared.1.notify_one();
        true
    }

    /// Drops everything that waits.
    pub(super) fn clear(&self) {
        let mut queue = self.lock();
        queue.messages.clear();
        queue.bytes = 0;
        queue.starved = false;
    }

    fn take(&self) -> (Vec<u8>, bool) {
        let mut queue = self.lock();
        loop {
            if let Some(message) = queue.messages.pop_front() {
                queue.bytes -= message.len();
                let starved = std::mem::take(&mut queue.starved);
                return (message, starved);
            }
            queue = self.shared.1.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    struct Slow {
        gate: Receiver<()>,
        got: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.gate.recv().map_err(io::Error::other)?;
            self.got.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stalled_reader_fills_a_bounded_queue_and_room_is_told() {
        let (open, gate) = channel();
        let (got, written) = channel();
        let (rung, room) = channel();
        let outbox = Outbox::start(Slow { gate, got }, move || rung.send(()).unwrap()).unwrap();
        let mut taken = 0;
        while outbox.offer(vec![0; 1024 * 1024]) {
            taken += 1;
        }
        assert!((8..=9).contains(&taken), "{taken}");
        for _ in 0..taken {
            open.send(()).unwrap();
        }
        assert_eq!(written.iter().take(taken).count(), taken);
        room.recv().unwrap();
        assert!(outbox.offer(vec![1]));
    }
}
