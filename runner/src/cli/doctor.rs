//! `doctor`: the findings as lines for people or as JSON, and an exit code by the worst.

use super::exit::{Exit, Failure};
use checkfu_runner::{
    config::Config,
    doctor::{self, Finding, Patient, Verdict},
    plane::Address,
    settings::Settings,
};
use std::path::Path;

/// What `doctor` is told beside the settings.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Examination {
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// Run no container.
    #[arg(long)]
    no_canary: bool,
    /// The control plane of a runner that is not paired yet.
    #[arg(long, value_name = "URL")]
    plane: Option<String>,
}

pub(crate) fn main(state_dir: &Path, settings: &Settings, arguments: &Examination) -> Result<Exit, Failure> {
    let plane = arguments.plane.as_deref().map(str::parse::<Address>).transpose();
    let plane = plane.map_err(|error| Failure::new(Exit::Usage, error))?;
    let config = Config::from(settings);
    let patient = Patient { state_dir, config: &config, plane, canary: !arguments.no_canary };
    let findings = super::runtime()?.block_on(doctor::examine(&patient));
    if arguments.json {
        println!("{}", serde_json::json!({ "worst": doctor::worst(&findings), "findings": findings }));
    } else {
        findings.iter().for_each(|finding| print!("{}", line(finding)));
    }
    Ok(match doctor::worst(&findings) {
        Verdict::Ok => Exit::Success,
        Verdict::Warn => Exit::Doubtful,
        Verdict::Fail => Exit::Failure,
    })
}

fn line(finding: &Finding) -> String {
    let word = match finding.verdict {
        Verdict::Ok => "ok  ",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    // What was seen may come from elsewhere, such as a certificate.
    let plain = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    let advice = finding.advice.as_deref();
    let advice = advice.map(|advice| format!("\n      -> {}", plain(advice))).unwrap_or_default();
    format!("{word}  {:<18} {}{advice}\n", finding.check, plain(&finding.seen))
}
