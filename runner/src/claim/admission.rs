//! Whether one more session may begin on this host: memory to spare, and no row of failures behind it. Pure decisions; the
//! caller brings the readings and the clock. What runs already is never touched.

use super::lease::BootInstant;
use std::time::Duration;

/// Below this share of the memory nothing new begins.
const FREE_PERCENT_MIN: u64 = 15;
/// So many failures of this host in a row make it stand aside.
const FAILURES_MAX: u32 = 3;
const ASIDE_MIN_MS: u64 = 60_000;
const ASIDE_MAX_MS: u64 = 1_800_000;

/// A host that keeps failing must not eat the queue: it stands aside, longer each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Quarantine {
    in_row: u32,
    until: Option<BootInstant>,
}

impl Quarantine {
    /// Notes how a claim ended: whether this host was at fault.
    pub(crate) fn note(&mut self, failed: bool, now: BootInstant) {
        if !failed {
            *self = Self::default();
            return;
        }
        self.in_row = self.in_row.saturating_add(1);
        if self.in_row >= FAILURES_MAX {
            let doubled = 1_u64 << (self.in_row - FAILURES_MAX).min(10);
            let aside = ASIDE_MIN_MS.saturating_mul(doubled).min(ASIDE_MAX_MS);
            self.until = Some(now.plus_ms(aside));
        }
    }

    /// How many failures there were in a row.
    pub(crate) const fn failures(self) -> u32 {
        self.in_row
    }

    /// How much longer it stands aside.
    pub(crate) fn wait(self, now: BootInstant) -> Option<Duration> {
        self.until.map(|until| until.after(now)).filter(|wait| !wait.is_zero())
    }
}

/// Why memory forbids a new session; `meminfo` is the kernel's own text. What cannot be read forbids nothing.
pub(crate) fn memory(meminfo: &str) -> Option<String> {
    let field = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').split_whitespace().next()?.parse().ok()
    };
    let (available, total) = (field("MemAvailable")?, field("MemTotal")?.max(1));
    let percent = available.saturating_mul(100) / total;
    (percent < FREE_PERCENT_MIN).then(|| {
        format!(
            "only {percent} % of the memory is free ({} MiB), below {FREE_PERCENT_MIN} %; running sessions go on",
            available / 1_024
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_ms(seconds * 1_000)
    }

    #[test]
    fn a_row_of_failures_stands_aside_longer_each_time_and_one_success_ends_it() {
        let mut quarantine = Quarantine::default();
        for _ in 0..2 {
            quarantine.note(true, at(10));
            assert_eq!(quarantine.wait(at(10)), None);
        }
        for (failure, seconds) in [(3, 60), (4, 120), (5, 240), (6, 480), (7, 960), (8, 1_800), (9, 1_800)] {
            quarantine.note(true, at(10));
            assert_eq!(quarantine.failures(), failure);
            assert_eq!(quarantine.wait(at(10)), Some(Duration::from_secs(seconds)));
            assert_eq!(quarantine.wait(at(10 + seconds)), None, "it tries again");
        }
        quarantine.note(false, at(11));
        assert_eq!(quarantine, Quarantine::default());
    }

    #[test]
    fn little_memory_forbids_and_an_unreadable_answer_does_not() {
        let text = |available: u64| {
            format!("MemTotal:       1000000 kB\nMemFree: 1 kB\nMemAvailable:   {available} kB\n")
        };
        for (available, forbids) in [(149_999, true), (150_000, false), (900_000, false), (0, true)] {
            assert_eq!(memory(&text(available)).is_some(), forbids, "{available}");
        }
        assert!(memory(&text(100_000)).unwrap().contains("10 %"));
        for unreadable in ["", "MemTotal: x kB", "MemAvailable: 1 kB"] {
            assert_eq!(memory(unreadable), None);
        }
    }
}
