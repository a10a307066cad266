//! A runner's end of the attach: the binary as a child, its messages in order of arrival.

use std::collections::HashMap;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use checkfu_toolbox::call::{Bash, Block, Outcome, Tool};
use checkfu_toolbox::message::{FromToolbox, Inbox, Refusal, ToToolbox, encode};

pub(crate) struct Sandbox {
    child: Child,
    stdin: ChildStdin,
    messages: Receiver<FromToolbox>,
    reading: Arc<Mutex<()>>,
    held: Option<std::sync::MutexGuard<'static, ()>>,
    results: HashMap<String, Outcome>,
    folder: tempfile::TempDir,
    number: u64,
    pub(crate) epoch: u64,
}

pub(crate) fn bash(command: &str) -> Tool {
    Tool::Bash(Bash { command: Some(command.into()), ..Bash::default() })
}

pub(crate) fn text(outcome: &Outcome) -> &str {
    match outcome.content.as_slice() {
        [Block::Text { text }] if !text.is_empty() => text,
        other => panic!("{other:?}"),
    }
}

impl Sandbox {
    /// Starts the binary and greets it with epoch 1.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, workspace) = (folder.path().join("root"), folder.path().join("w"));
        std::fs::create_dir(&workspace).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_checkfu-toolbox"))
            .arg("serve")
            .args([&root, &workspace])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, messages) = channel();
        let reading = Arc::new(Mutex::new(()));
        let gate = Arc::clone(&reading);
        std::thread::spawn(move || {
            let (mut inbox, mut buffer) = (Inbox::new(), vec![0; 65_536]);
            loop {
                drop(gate.lock());
                let count = stdout.read(&mut buffer).unwrap_or(0);
                inbox.push(&buffer[..count]);
                while let Some(message) = inbox.next_message().unwrap() {
                    if sender.send(message).is_err() {
                        return;
                    }
                }
                if count == 0 {
                    return;
                }
            }
        });
        let mut sandbox = Self {
            child,
            stdin,
            messages,
            reading,
            held: None,
            results: HashMap::new(),
            folder,
            number: 0,
            epoch: 1,
        };
        sandbox.hello(1, 600_000);
        sandbox
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.folder.path().join("w")
    }

    pub(crate) fn say_raw(&mut self, bytes: &[u8]) {
        self.stdin.write_all(bytes).unwrap();
    }

    fn encoded(&mut self, message: &ToToolbox) -> Vec<u8> {
        self.number += 1;
        encode(message, self.number).unwrap()
    }

    pub(crate) fn say(&mut self, message: &ToToolbox) {
        let bytes = self.encoded(message);
        self.say_raw(&bytes);
    }

    /// Says the first bytes of a call only, as a runner does that dies meanwhile.
    pub(crate) fn say_cut(&mut self, call_id: &str, tool: Tool, bytes: usize) {
        let call = ToToolbox::Call { epoch: self.epoch, call_id: call_id.into(), thread: "t".into(), tool };
        let whole = self.encoded(&call);
        self.say_raw(&whole[..bytes]);
    }

    pub(crate) fn hello(&mut self, epoch: u64, lease_ms: u64) -> FromToolbox {
        self.hello_with(epoch, lease_ms, 600_000)
    }

    pub(crate) fn hello_with(&mut self, epoch: u64, lease_ms: u64, keep_ms: u64) -> FromToolbox {
        self.results.clear();
        self.epoch = epoch;
        self.say(&ToToolbox::Hello { epoch, lease_ms, keep_ms });
        self.wait_for(|message| match message {
            FromToolbox::Ready { epoch: answered, .. } if *answered == epoch => Some(message.clone()),
            _ => None,
        })
    }

    pub(crate) fn call(&mut self, call_id: &str, thread: &str, tool: Tool) -> String {
        self.results.remove(call_id);
        let epoch = self.epoch;
        self.say(&ToToolbox::Call { epoch, call_id: call_id.into(), thread: thread.into(), tool });
        call_id.to_owned()
    }

    pub(crate) fn run(&mut self, call_id: &str, thread: &str, tool: Tool) -> Outcome {
        self.call(call_id, thread, tool);
        self.wait_done(call_id)
    }

    pub(crate) fn refusal(&mut self, call_id: &str, tool: Tool) -> Refusal {
        self.call(call_id, "t", tool);
        self.wait_for(|message| match message {
            FromToolbox::Refused { call_id: Some(id), reason } if id == call_id => Some(*reason),
            _ => None,
        })
    }

    pub(crate) fn wait_done(&mut self, call_id: &str) -> Outcome {
        if let Some(result) = self.results.get(call_id) {
            return result.clone();
        }
        self.wait_for(|message| match message {
            FromToolbox::Done { call_id: id, result } if id == call_id => Some(result.clone()),
            _ => None,
        })
    }

    /// The first message that is wanted; results that pass by are kept for later.
    pub(crate) fn wait_for<T>(&mut self, wanted: impl Fn(&FromToolbox) -> Option<T>) -> T {
        loop {
            let message = self.messages.recv_timeout(Duration::from_secs(30)).unwrap();
            let found = wanted(&message);
            if let FromToolbox::Done { call_id, result } = message {
                self.results.insert(call_id, result);
            }
            if let Some(found) = found {
                return found;
            }
        }
    }

    pub(crate) fn stop_reading(&mut self) {
        // The lock outlives the sandbox's test, which is what a guard without lifetime needs.
        let gate: &'static Mutex<()> = Box::leak(Box::new(Arc::clone(&self.reading)));
        self.held = Some(gate.lock().unwrap());
    }

    pub(crate) fn read_again(&mut self) {
        self.held = None;
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
