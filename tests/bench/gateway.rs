//! What the gateway adds to a model request: time to the first byte, and processor time for each streamed MiB, against the
//! same request sent to the same scripted provider directly. The capability is read from a live claim's renewal on its way
//! to the runner, since nothing else is ever told it.

use super::{Bound, Row};
use rig::{api::script, process::Process, wait, world::World};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Rounds of A and B in turn.
const ROUNDS: usize = 5;
/// Short requests of each in one round.
const SAMPLES: usize = 20;
/// Characters of each long reply.
const LONG_CHARS: usize = 400_000;

/// Both ways to ask.
struct Ways {
    client: reqwest::Client,
    direct: String,
    direct_key: &'static str,
    gateway: String,
    token: String,
}

impl Ways {
    /// Asks, and reads the reply to its end: when the first byte came, and how many there were.
    async fn ask(&self, through_gateway: bool, text: &str) -> (Duration, usize) {
        let (url, key) = if through_gateway {
            (&self.gateway, self.token.as_str())
        } else {
            (&self.direct, self.direct_key)
        };
        let body = json!({
            "model": "scripted-1", "max_tokens": 16, "stream": true,
            "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
        });
        let begun = Instant::now();
        let request =
            self.client.post(url).header("x-api-key", key).header("anthropic-version", "2023-06-01");
        let mut reply = request.json(&body).send().await.expect("an answer");
        assert!(reply.status().is_success(), "{}", reply.text().await.unwrap_or_default());
        let mut bytes = reply.chunk().await.expect("a piece").expect("a first piece").len();
        let first = begun.elapsed();
        while let Some(piece) = reply.chunk().await.expect("a whole reply") {
            bytes += piece.len();
        }
        (first, bytes)
    }
}

/// The two rows.
pub(crate) async fn rows() -> [Row; 2] {
    let mut world = World::without_runner().await;
    let seen = Arc::new(Mutex::new(None));
    let relay = listen(world.address(), Arc::clone(&seen)).await;
    world.pair_at("runner", &format!("http://{relay}"), |program| program).await;
    let runner = world.start_other_runner("runner");
    let session = world.session(&script(&json!([{"say": "held", "hold": "bench"}]))).await;
    let token = wait::until("a capability", async || {
        let token: Option<String> = seen.lock().expect("the capability").clone();
        token
    })
    .await;
    let ways = Ways {
        client: reqwest::Client::builder().no_proxy().build().expect("a client"),
        direct: format!("{}/v1/messages", world.model.url()),
        direct_key: world.model_key(),
        gateway: format!("{}/v1/gateway/v1/messages", world.url()),
        token,
    };
    let first = first_byte(&ways).await;
    let cpu = processor(&ways, world.plane_id()).await;
    world.model.release("bench");
    world.api.idle(&session, 1).await;
    drop::<Process>(runner);
    [first, cpu]
}

async fn first_byte(ways: &Ways) -> Row {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let text = script(&json!([{"say": "ok"}]));
    for through_gateway in [true, false] {
        ways.ask(through_gateway, &text).await;
    }
    for _ in 0..ROUNDS {
        for _ in 0..SAMPLES {
            a.push(ways.ask(true, &text).await.0);
            b.push(ways.ask(false, &text).await.0);
        }
    }
    Row {
        name: "gateway",
        what: "first byte through the gateway / from the provider itself; goal in added ms",
        a,
        b,
        goal: Bound::Added(1.5),
    }
}

/// Processor time of everything that takes part, for each MiB.
async fn processor(ways: &Ways, plane: u32) -> Row {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let text = script(&json!([{"say": "x".repeat(LONG_CHARS)}]));
    for _ in 0..ROUNDS {
        for (through_gateway, samples) in [(true, &mut a), (false, &mut b)] {
            let before = spent(plane) + spent(std::process::id());
            let (_, bytes) = ways.ask(through_gateway, &text).await;
            let used = spent(plane) + spent(std::process::id()) - before;
            samples.push(used.mul_f64(f64::from(1 << 20) / bytes_f64(bytes)));
        }
    }
    Row {
        name: "gatecpu",
        what: "processor time for each streamed MiB, all processes: through the gateway / directly",
        a,
        b,
        goal: Bound::AtMost(1.3),
    }
}

fn bytes_f64(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes).expect("a reply below 4 GiB"))
}

/// The processor time that a process used so far.
fn spent(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 =
        fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number");
    // The kernel counts in hundredths of a second.
    Duration::from_millis(ticks * 10)
}

/// Passes bytes between runner and control plane on, and keeps the first capability that passes.
async fn listen(plane: SocketAddr, seen: Arc<Mutex<Option<String>>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass(client, plane, Arc::clone(&seen)));
        }
    });
    address
}

async fn pass(client: TcpStream, plane: SocketAddr, seen: Arc<Mutex<Option<String>>>) {
    let Ok(server) = TcpStream::connect(plane).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async { tokio::io::copy(&mut from_client, &mut to_server).await };
    let down = async {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            let text = String::from_utf8_lossy(&buffer[..count]);
            if let Some(token) = capability(&text) {
                seen.lock().expect("the capability").get_or_insert(token);
            }
            if to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(up, down).0.ok();
}

fn capability(text: &str) -> Option<String> {
    let at = text.find("\"cap_")?;
    let token: &str = text[at + 1..].split('"').next()?;
    serde_json::from_value(Value::from(token)).ok()
}
