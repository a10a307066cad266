//! The way to the control plane: its name, who vouches for its certificate, whether it answers, and its clock.

use super::{Finding, chain, judge};
use crate::plane::{Address, Link, carrier::Way};
use checkfu_shared::{
    protocol,
    time::{Clock as _, SystemClock},
};
use reqwest::{Method, Url, header};
use std::{path::Path, time::Duration};

const ANSWER_WAIT: Duration = Duration::from_secs(15);

pub(super) async fn examine(address: &Address, ca: Option<&Path>) -> Vec<Finding> {
    const CHECK: &str = "control plane";
    let Ok(url) = Url::parse(&address.at("/")) else { return Vec::new() };
    let (host, port) =
        (url.host_str().unwrap_or_default().to_owned(), url.port_or_known_default().unwrap_or(443));
    let proxied = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|value| !value.is_empty()))
        && !address.is_loopback();
    let looked = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await;
    let addresses = looked.map(|found| found.map(|found| found.ip()).collect::<Vec<_>>());
    let mut findings = vec![judge::names(&host, addresses.map_err(|error| error.to_string()), proxied)];
    if url.scheme() == "https" && !proxied {
        findings.push(chain::examine(&host, port, ca).await);
    }
    let link = match Link::new(address.clone(), ca) {
        Ok(link) => link,
        Err(error) => {
            findings.push(Finding::fail(CHECK, error.to_string(), "correct --ca, or the proxy's address"));
            return findings;
        }
    };
    let Way::Http(http) = link.way() else { return findings };
    let (http, _) = http.client();
    let request = link.request(&http, Method::GET, "/v1/runner/nonce", None).timeout(ANSWER_WAIT);
    let before = SystemClock.now();
    match request.send().await {
        Ok(answer) => {
            let after = SystemClock.now();
            let status = answer.status();
            let ours = answer.headers().contains_key(protocol::HEADER);
            let date = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok());
            let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
            findings.push(if ours && status.is_success() {
                Finding::ok(CHECK, format!("{address} answers"))
            } else {
                Finding::fail(
                    CHECK,
                    format!("{address} answers {status}, and not in the control plane's words"),
                    "check the address and what stands in between, such as a proxy or a login page",
                )
            });
            if let Some(date) = date.filter(|_| ours) {
                let date_ms = date.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis());
                let middle = before.as_ms() + after.since_ms(before) / 2;
                // The header counts whole seconds, on average half of one ago.
                let ahead_ms = middle - i64::try_from(date_ms).unwrap_or(0) - 500;
                findings.push(judge::clock(ahead_ms));
            }
        }
        Err(error) => {
            let error = crate::plane::unreachable(&error);
            findings.push(Finding::fail(
                CHECK,
                error.to_string(),
                "see the lines above; then check firewall and proxy",
            ));
        }
    }
    findings
}
