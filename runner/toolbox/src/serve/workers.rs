//! Threads of PID 1 that run the file tools, and the bell with which threads wake its loop.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::backstop::Backstop;
use crate::call::{Outcome, Tool};
use crate::supervise::Places;
use crate::tools::{self, Context, Seen};

const THREADS: usize = 4;
const MAX_THREADS: usize = 12;
/// Beyond the longest walk: a tool that is not back by then is stuck in the kernel.
const LIMIT: Duration = Duration::from_secs(90);

/// Wakes the loop of PID 1 from another thread.
#[derive(Debug)]
pub(super) struct Bell(OwnedFd);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn ring(&self) {
        let _rings_already = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(super) fn hush(&self) {
        let mut count = [0_u8; 8];
        let _is_quiet = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct Task {
    call_id: String,
    thread: String,
    tool: Tool,
    cancel: Arc<AtomicBool>,
}

#[derive(Clone)]
struct Shop {
    tasks: Arc<Mutex<Receiver<Task>>>,
    results: Sender<(String, Outcome)>,
    bell: Arc<Bell>,
    seen: Arc<Seen>,
    places: Places,
}

/// The pool. As many tasks as calls may run can be in it, no more.
pub(super) struct Workers {
    shop: Shop,
    tasks: Sender<Task>,
    results: Receiver<(String, Outcome)>,
    open: HashMap<String, (Arc<AtomicBool>, Backstop)>,
    threads: usize,
}

impl Workers {
    pub(super) fn start(places: &Places, bell: Bell) -> io::Result<Self> {
        let (tasks, queue) = channel();
        let (sender, results) = channel();
        let shop = Shop {
            tasks: Arc::new(Mutex::new(queue)),
            results: sender,
            bell: Arc::new(bell),
            seen: Arc::default(),
            places: places.clone(),
        };
        let mut workers = Self { shop, tasks, results, open: HashMap::new(), threads: 0 };
        for _ in 0..THREADS {
            workers.add_thread()?;
        }
        Ok(workers)
    }

    /// Threads live as long as the process; one stuck in the kernel cannot be joined.
    fn add_thread(&mut self) -> io::Result<()> {
        let shop = self.shop.clone();
        std::thread::Builder::new().name("tool".into()).spawn(move || shop.work())?;
        self.threads += 1;
        Ok(())
    }

    pub(super) fn submit(&mut self, call_id: String, thread: String, tool: Tool) {
        let cancel = Arc::new(AtomicBool::new(false));
        self.open.insert(call_id.clone(), (Arc::clone(&cancel), Backstop::new(LIMIT)));
        let _threads_live = self.tasks.send(Task { call_id, thread, tool, cancel });
    }

    pub(super) fn cancel(&self, call_id: &str) {
        if let Some((cancel, _)) = self.open.get(call_id) {
            cancel.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn finished(&mut self) -> Vec<(String, Outcome)> {
        let finished: Vec<_> = self.results.try_iter().collect();
        for (call_id, _) in &finished {
            self.open.remove(call_id);
        }
        finished
    }

    pub(super) fn busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// Calls given up; another thread takes the place of the one that is stuck with each.
    pub(super) fn overdue(&mut self) -> Vec<String> {
        let mut overdue = Vec::new();
        self.open.retain(|call_id, (_, backstop)| {
            let spent = backstop.spent(false);
            if spent {
                overdue.push(call_id.clone());
            }
            !spent
        });
        for _ in &overdue {
            if self.threads < MAX_THREADS {
                let _fewer_threads_serve = self.add_thread();
            }
        }
        overdue
    }
}

impl Shop {
    fn work(&self) {
        loop {
            let task = self.tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Task { call_id, thread, tool, cancel }) = task else { return };
            let context = Context {
                workspace: self.places.workspace.clone(),
                root: self.places.root.clone(),
                call_id: &call_id,
                thread: &thread,
                seen: &self.seen,
                cancel: &cancel,
            };
            let outcome = tools::run(&tool, &context);
            let _server_lives = self.results.send((call_id, outcome));
            self.bell.ring();
        }
    }
}
