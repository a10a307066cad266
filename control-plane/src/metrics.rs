//! `/live`, `/ready` and `/metrics` on a loopback address of their own, when asked for. It reads and changes nothing.
//! The names are a contract with dashboards: `packaging/metrics.md` lists them all, and a test holds both together.

use crate::{
    http::{Plane, listen},
    serve::DATABASE_FILE,
    store,
};
use axum::{Router, extract::State, http::StatusCode, http::header, response::IntoResponse, routing::get};
use rusqlite::Connection;
use std::{fmt::Write as _, fs, net::SocketAddr, path::Path, time::Duration};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const CONNECTIONS_MAX: usize = 16;
/// A runner that was heard within this time counts as online.
const ONLINE_MS: i64 = 90_000;
const GRACE: Duration = Duration::from_secs(1);

/// Answers until the order to stop.
pub(crate) async fn serve(listener: TcpListener, plane: Plane, stop: CancellationToken) {
    let router = Router::new()
        .route("/live", get(async || "live\n"))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .fallback(async || (StatusCode::NOT_FOUND, "There are /live, /ready and /metrics.\n"))
        .with_state(plane);
    listen::serve(listener, None, router, CONNECTIONS_MAX, stop, GRACE).await;
}

/// Listens; the address was checked to be a loopback one.
pub(crate) async fn listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "metrics are answered here");
    Ok(listener)
}

async fn ready(State(plane): State<Plane>) -> (StatusCode, String) {
    if plane.stop.is_cancelled() || plane.store.failed() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    match plane.store.write(|_| Ok(())).await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("the database takes nothing: {error}\n")),
    }
}

async fn metrics(State(plane): State<Plane>) -> impl IntoResponse {
    let now_ms = plane.clock.now().as_ms();
    let counted = plane.store.read(move |conn| counts(conn, now_ms)).await;
    match counted {
        Ok(counts) => {
            let text = rendered(&counts, store_bytes(&plane.config.data_dir), &Process::now());
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("the database does not answer: {error}\n"))
            .into_response(),
    }
}

/// What the database says.
#[derive(Debug, Default)]
struct Counts {
    sessions: Vec<(String, u64)>,
    runners: Vec<(String, u64)>,
    queued: u64,
    claims: u64,
}

fn counts(conn: &Connection, now_ms: i64) -> Result<Counts, store::Error> {
    let grouped = |sql: &str,
                   parameters: &[&dyn rusqlite::ToSql]|
     -> Result<Vec<(String, u64)>, store::Error> {
        let mut statement = conn.prepare_cached(sql)?;
        let rows = statement.query_map(parameters, |row| Ok((row.get(0)?, row.get::<_, u32>(1)?.into())))?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let one = |sql: &str| -> Result<u64, store::Error> {
        Ok(conn.prepare_cached(sql)?.query_row([], |row| row.get::<_, u32>(0))?.into())
    };
    Ok(Counts {
        sessions: grouped("select status, count(*) from sessions group by status", &[])?,
        runners: grouped(
            "select case when revoked_at is not null then 'revoked' when last_seen > ?1 then 'online' else 'silent' end, \
             count(*) from runners group by 1",
            &[&(now_ms - ONLINE_MS)],
        )?,
        queued: one("select count(*) from queue")?,
        claims: one("select count(*) from claims where state = 'live'")?,
    })
}

/// The database with what is not yet folded into it.
fn store_bytes(data_dir: &Path) -> u64 {
    let file = data_dir.join(DATABASE_FILE);
    let journal = file.with_extension("db-wal");
    [file, journal].iter().filter_map(|path| fs::metadata(path).ok()).map(|found| found.len()).sum()
}

/// What the kernel says of this process.
#[derive(Debug, Default)]
struct Process {
    resident_bytes: u64,
    cpu_ticks: u64,
    descriptors: u64,
}

impl Process {
    fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let status = read("/proc/self/status");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let kib: u64 = resident.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        let stat = read("/proc/self/stat");
        // The second field may hold anything, so counting begins after it.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        Self {
            resident_bytes: kib.saturating_mul(1_024),
            cpu_ticks: [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum(),
            descriptors: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64,
        }
    }
}

fn rendered(counts: &Counts, store_bytes: u64, process: &Process) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, String)]| {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let one = |value: u64| vec![(String::new(), value.to_string())];
    let by = |label: &str, samples: &[(String, u64)]| -> Vec<(String, String)> {
        samples.iter().map(|(value, count)| (format!("{{{label}=\"{value}\"}}"), count.to_string())).collect()
    };
    let info = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    family("checkfu_info", "gauge", "Always 1; says which version this is.", &[(info, "1".to_owned())]);
    family("checkfu_sessions", "gauge", "Sessions by status.", &by("status", &counts.sessions));
    family(
        "checkfu_runners",
        "gauge",
        "Runners by whether they were heard lately.",
        &by("state", &counts.runners),
    );
    family("checkfu_queued_runs", "gauge", "Runs that wait for a runner.", &one(counts.queued));
    family("checkfu_live_claims", "gauge", "Runs that a runner holds.", &one(counts.claims));
    family("checkfu_store_bytes", "gauge", "Size of the database with its journal.", &one(store_bytes));
    family("process_resident_memory_bytes", "gauge", "Resident memory.", &one(process.resident_bytes));
    let (seconds, hundredths) = (process.cpu_ticks / 100, process.cpu_ticks % 100);
    let used = [(String::new(), format!("{seconds}.{hundredths:02}"))];
    family("process_cpu_seconds_total", "counter", "Processor time used.", &used);
    family("process_open_fds", "gauge", "Open file descriptors.", &one(process.descriptors));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_documented_and_every_documented_name_exists() {
        let documented = include_str!("../../packaging/metrics.md");
        let section = documented.split("## checkfu\n").nth(1).unwrap().split("\n## ").next().unwrap();
        let text = rendered(&Counts::default(), 0, &Process::default());
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
    fn samples_have_the_text_form() {
        let counts = Counts { sessions: vec![("idle".to_owned(), 3)], queued: 2, ..Counts::default() };
        let process = Process { cpu_ticks: 205, ..Process::default() };
        let text = rendered(&counts, 17, &process);
        for line in [
            "checkfu_sessions{status=\"idle\"} 3",
            "checkfu_queued_runs 2",
            "checkfu_store_bytes 17",
            "process_cpu_seconds_total 2.05",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_database_is_asked_in_its_own_terms() {
        let dir = tempfile::tempdir().unwrap();
        drop(store::Store::open(&dir.path().join(DATABASE_FILE)).unwrap());
        let conn = Connection::open(dir.path().join(DATABASE_FILE)).unwrap();
        assert!(counts(&conn, 0).unwrap().sessions.is_empty());
        assert!(store_bytes(dir.path()) > 0);
    }
}
