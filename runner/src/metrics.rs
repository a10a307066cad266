//! `/live`, `/ready` and `/metrics` on a loopback address, when asked for. It reads the daemon's status and changes nothing.
//! The names are a contract with dashboards: `packaging/metrics.md` lists them all, and a test holds both together.

use crate::status::{Reporter, Status};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode, body::Incoming, header, server::conn::http1, service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, fmt::Write as _, io, net::SocketAddr, time::Duration};
use tokio::{net::TcpListener, task::JoinSet};

const CONNECTIONS_MAX: usize = 16;
const CONNECTION_TIME: Duration = Duration::from_secs(30);
/// The states of [`Status::state`], each of which is a sample.
const STATES: [&str; 8] =
    ["starting", "ready", "full", "waiting", "unready", "drained", "draining", "revoked"];

/// The listening socket of the metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    listener: TcpListener,
    reporter: Reporter,
}

impl Metrics {
    /// Listens; the address was checked to be a loopback one.
    pub(crate) async fn open(address: SocketAddr, reporter: Reporter) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        tracing::info!(address = %listener.local_addr()?, "metrics are answered here");
        Ok(Self { listener, reporter })
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next() => {}
                came = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match came {
                    Ok((stream, _)) => {
                        let reporter = self.reporter.clone();
                        connections.spawn(async move {
                            let service = service_fn(|request| {
                                let answer = answer(&request, &reporter);
                                async { Ok::<_, Infallible>(answer) }
                            });
                            let connection = http1::Builder::new()
                                .timer(TokioTimer::new())
                                .header_read_timeout(Duration::from_secs(10))
                                .serve_connection(TokioIo::new(stream), service);
                            // A scraper that hangs up is its own business.
                            let _ = tokio::time::timeout(CONNECTION_TIME, connection).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the metrics take nobody in");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                },
            }
        }
    }
}

fn answer(request: &Request<Incoming>, reporter: &Reporter) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/live") => (StatusCode::OK, "live\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/ready") => ready(&reporter.now()),
        (&Method::GET | &Method::HEAD, "/metrics") => {
            (StatusCode::OK, rendered(&reporter.now(), &Process::now()))
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, "There are /live, /ready and /metrics.\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered.\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Ready means that this runner would take work, or is busy with all it can take.
fn ready(status: &Status) -> (StatusCode, String) {
    let reason = status.reason.as_deref().unwrap_or_default();
    let code = match status.state.as_str() {
        "ready" | "full" => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{} {reason}\n", status.state))
}

/// What the kernel says of this process.
#[derive(Debug, Clone, Copy, Default)]
struct Process {
    resident_bytes: u64,
    cpu_ticks: u64,
    descriptors: u64,
}

impl Process {
    fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (resident_bytes, cpu_ticks) =
            (resident(&read("/proc/self/status")), ticks(&read("/proc/self/stat")));
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Self { resident_bytes, cpu_ticks, descriptors: descriptors as u64 }
    }
}

fn resident(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
    kib.saturating_mul(1_024)
}

/// User and system time; the second field may hold anything, so counting begins after it.
fn ticks(stat: &str) -> u64 {
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
}

/// The Prometheus text form.
fn rendered(status: &Status, process: &Process) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "samples are floating by their form")]
    let number = |value: u64| value as f64;
    let one = |value: u64| vec![(String::new(), number(value))];
    let age = |seconds: Option<u64>| {
        seconds.map(|seconds| (String::new(), number(seconds))).into_iter().collect::<Vec<_>>()
    };
    let by = |label: &str, samples: &[(&str, u64)]| -> Vec<(String, f64)> {
        samples.iter().map(|(value, count)| (format!("{{{label}=\"{value}\"}}"), number(*count))).collect()
    };
    let info = format!("{{version=\"{}\",runner_id=\"{}\"}}", status.version, status.runner_id);
    family("checkfu_runner_info", "gauge", "Always 1; says which runner this is.", &[(info, 1.0)]);
    let states = STATES.map(|state| (state, u64::from(state == status.state)));
    family("checkfu_runner_state", "gauge", "1 for the state it is in.", &by("state", &states));
    family("checkfu_runner_slots", "gauge", "How many sessions fit.", &one(status.max_sessions.into()));
    family(
        "checkfu_runner_sessions",
        "gauge",
        "How many sessions are held.",
        &one(status.sessions.len() as u64),
    );
    family("checkfu_runner_drained", "gauge", "1 after `checkfu-runner drain`.", &one(status.drained.into()));
    family(
        "checkfu_runner_spool_bytes",
        "gauge",
        "Bytes that the control plane has not taken yet.",
        &one(status.spool_bytes),
    );
    family(
        "checkfu_runner_last_contact_seconds",
        "gauge",
        "Since the control plane last answered.",
        &age(status.last_contact_s),
    );
    family(
        "checkfu_runner_last_poll_seconds",
        "gauge",
        "Since a request for work was last answered.",
        &age(status.last_poll_s),
    );
    let counts = status.counts;
    let polls = [("work", counts.polls_work), ("empty", counts.polls_empty), ("failed", counts.polls_failed)];
    family("checkfu_runner_polls_total", "counter", "Requests for work by outcome.", &by("outcome", &polls));
    let claims = [
        ("settled", counts.claims_settled),
        ("unfinished", counts.claims_unfinished),
        ("given_back", counts.claims_given_back),
        ("lost", counts.claims_lost),
        ("unsettled", counts.claims_unsettled),
    ];
    family("checkfu_runner_claims_total", "counter", "Claims by how they ended.", &by("outcome", &claims));
    family(
        "checkfu_runner_failures_in_row",
        "gauge",
        "Runs that this host failed, in a row.",
        &one(counts.failures_in_row),
    );
    family("process_resident_memory_bytes", "gauge", "Resident memory.", &one(process.resident_bytes));
    let seconds = number(process.cpu_ticks) / 100.0;
    family("process_cpu_seconds_total", "counter", "Processor time used.", &[(String::new(), seconds)]);
    family("process_open_fds", "gauge", "Open file descriptors.", &one(process.descriptors));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::{
        id::{InstanceId, RunnerId},
        time::Timestamp,
    };

    fn status(state: &str) -> Status {
        Status {
            written_at: Timestamp::from_ms(0),
            version: "0.1.0".to_owned(),
            pid: 1,
            instance_id: InstanceId::mint(),
            runner_id: RunnerId::mint(),
            name: "r".to_owned(),
            plane: "https://x".to_owned(),
            state: state.to_owned(),
            reason: None,
            max_sessions: 4,
            last_contact_s: Some(3),
            last_poll_s: None,
            drained: false,
            spool_bytes: 17,
            spool_bytes_max: 18,
            counts: Default::default(),
            sessions: Vec::new(),
        }
    }

    #[test]
    fn every_name_is_documented_and_every_documented_name_exists() {
        let documented = include_str!("../../packaging/metrics.md");
        let section = documented.split("## checkfu-runner").nth(1).unwrap().split("\n## ").next().unwrap();
        let text = rendered(&status("ready"), &Process::default());
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        for name in &names {
            assert!(section.contains(&format!("`{name}`")), "{name} is not documented");
        }
        let listed = section.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(listed, names.len(), "a documented name does not exist");
    }

    #[test]
    fn samples_have_the_text_form_and_what_is_unknown_is_absent() {
        let text =
            rendered(&status("full"), &Process { resident_bytes: 4_096, cpu_ticks: 250, descriptors: 9 });
        for line in [
            "checkfu_runner_state{state=\"full\"} 1",
            "checkfu_runner_state{state=\"ready\"} 0",
            "checkfu_runner_slots 4",
            "checkfu_runner_spool_bytes 17",
            "checkfu_runner_last_contact_seconds 3",
            "process_cpu_seconds_total 2.5",
            "process_resident_memory_bytes 4096",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("\ncheckfu_runner_last_poll_seconds "));
    }

    #[test]
    fn only_a_runner_that_would_work_is_ready() {
        for state in STATES {
            let expected = if ["ready", "full"].contains(&state) { 200 } else { 503 };
            assert_eq!(ready(&status(state)).0.as_u16(), expected, "{state}");
        }
    }

    #[test]
    fn the_kernels_answers_are_understood() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    1234 kB\n"), 1_234 * 1_024);
        assert_eq!(ticks("1 (a b) c) S 1 1 1 0 -1 4 1 0 0 0 70 30 0 0 20 0"), 100);
        assert!(Process::now().resident_bytes > 0);
    }
}
