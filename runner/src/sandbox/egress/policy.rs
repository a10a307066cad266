//! Which hosts and ports an environment allows. A rule that cannot be read allows nothing; an empty list denies all.

use super::{
    authority::{self, Host},
    denied::Reason,
};
use checkfu_shared::environment::Network;

const DEFAULT_PORTS: [u16; 2] = [443, 80];

/// What a sandbox may reach. Immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Policy {
    Listed(Vec<Rule>),
    Everything,
}

/// One allowed host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pattern: Pattern,
    /// `None` is the default ports.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Exact(Host),
    /// Every name below this one, not the name itself.
    Below(String),
}

impl Policy {
    pub(super) fn of(network: &Network) -> Self {
        match network {
            Network::None => Self::Listed(Vec::new()),
            Network::Limited { allowed_hosts } => {
                let rules = allowed_hosts.iter().filter_map(|text| {
                    let rule = Rule::parse(text);
                    if rule.is_none() {
                        tracing::warn!(rule = text, "an allowed host cannot be read; it allows nothing");
                    }
                    rule
                });
                Self::Listed(rules.collect())
            }
            Network::Unrestricted => Self::Everything,
        }
    }

    /// Whether this host and port may be reached, before it is resolved.
    pub(super) fn allows(&self, host: &Host, port: u16) -> Result<(), Reason> {
        let Self::Listed(rules) = self else { return Ok(()) };
        let mut listed = rules.iter().filter(|rule| rule.matches(host)).peekable();
        if listed.peek().is_none() {
            return Err(Reason::NotListed);
        }
        if listed.any(|rule| rule.has_port(port)) { Ok(()) } else { Err(Reason::PortNotListed) }
    }

    /// Whether a tunnel must show by its TLS handshake that it goes where it was asked to.
    pub(super) const fn demands_sni(&self) -> bool {
        matches!(self, Self::Listed(_))
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (host, port) = authority::authority(rest).ok()?;
        let pattern = match (below, host) {
            (false, host) => Pattern::Exact(host),
            (true, Host::Name(name)) => Pattern::Below(name),
            (true, Host::Address(_)) => return None,
        };
        Some(Self { pattern, port })
    }

    fn matches(&self, host: &Host) -> bool {
        match (&self.pattern, host) {
            (Pattern::Exact(listed), host) => listed == host,
            (Pattern::Below(suffix), Host::Name(name)) => name
                .strip_suffix(suffix.as_str())
                .and_then(|head| head.strip_suffix('.'))
                .is_some_and(|head| !head.is_empty()),
            (Pattern::Below(_), Host::Address(_)) => false,
        }
    }

    fn has_port(&self, port: u16) -> bool {
        self.port.map_or_else(|| DEFAULT_PORTS.contains(&port), |listed| listed == port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(rules: &[&str], host: &str, port: u16) -> Result<(), Reason> {
        let allowed_hosts = rules.iter().map(|rule| (*rule).to_owned()).collect();
        Policy::of(&Network::Limited { allowed_hosts }).allows(&authority::host(host).unwrap(), port)
    }

    #[test]
    fn rules_match_exactly_what_they_say() {
        for (rules, host, port, verdict) in [
            (&["ok.test"][..], "ok.test", 443, Ok(())),
            (&["ok.test"], "OK.test.", 80, Ok(())),
            (&["ok.test"], "ok.test", 8080, Err(Reason::PortNotListed)),
            (&["ok.test:8080"], "ok.test", 8080, Ok(())),
            (&["ok.test:8080"], "ok.test", 443, Err(Reason::PortNotListed)),
            (&["ok.test:8080", "ok.test"], "ok.test", 443, Ok(())),
            (&["ok.test"], "a.ok.test", 443, Err(Reason::NotListed)),
            (&["*.ok.test"], "a.ok.test", 443, Ok(())),
            (&["*.ok.test"], "b.a.ok.test", 443, Ok(())),
            (&["*.ok.test"], "ok.test", 443, Err(Reason::NotListed)),
            (&["*.ok.test"], "evilok.test", 443, Err(Reason::NotListed)),
            (&["*.OK.test:99"], "a.ok.test", 99, Ok(())),
            (&[], "ok.test", 443, Err(Reason::NotListed)),
            (&["*"], "ok.test", 443, Err(Reason::NotListed)),
            (&["*.*"], "ok.test", 443, Err(Reason::NotListed)),
            (&["http://ok.test"], "ok.test", 443, Err(Reason::NotListed)),
            (&["1.2.3.4"], "1.2.3.4", 443, Ok(())),
            (&["*.3.4"], "1.2.3.4", 443, Err(Reason::NotListed)),
        ] {
            assert_eq!(judge(rules, host, port), verdict, "{rules:?} {host}:{port}");
        }
    }

    #[test]
    fn no_network_allows_nothing_and_unrestricted_everything() {
        let host = authority::host("ok.test").unwrap();
        assert_eq!(Policy::of(&Network::None).allows(&host, 443), Err(Reason::NotListed));
        assert_eq!(Policy::of(&Network::Unrestricted).allows(&host, 25), Ok(()));
    }
}
