//! `checkfu environments`: what sandboxes are made of and what they may reach.

use super::{
    client::Client,
    failure::Failure,
    sessions,
    shape::{self, Members},
    terminal::Output,
};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

const COLUMNS: Members = &[
    ("ID", "/id"),
    ("NAME", "/name"),
    ("IMAGE", "/config/image"),
    ("NETWORK", "/config/networking/type"),
    ("CREATED", "/created_at"),
];
const FIELDS: Members = &[
    ("id", "/id"),
    ("name", "/name"),
    ("description", "/description"),
    ("image", "/config/image"),
    ("network", "/config/networking/type"),
    ("hosts", "/config/networking/allowed_hosts"),
    ("config", "/config"),
    ("created", "/created_at"),
    ("updated", "/updated_at"),
    ("archived", "/archived_at"),
];

/// What to do with environments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an environment
    Create(Create),
    /// List environments
    List {
        /// Show at most this many
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show one environment
    Show {
        /// The environment: its id or its name
        environment: String,
    },
}

/// `environments create`.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// A name, not used yet
    #[arg(long)]
    name: String,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// A Docker image; without this option the runner's default image
    #[arg(long)]
    image: Option<String>,
    /// What its sandboxes may reach
    #[arg(long, default_value = "none")]
    network: Network,
    /// A host they may reach, as `name` or `*.suffix`, with `:port` or without (repeatable; with --network limited)
    #[arg(long = "allow-host", value_name = "HOST")]
    allow_hosts: Vec<String>,
    /// A label that a runner must carry to be offered its sessions (repeatable)
    #[arg(long = "label")]
    labels: Vec<String>,
}

/// What sandboxes may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    /// Nothing at all
    None,
    /// The hosts given with --allow-host
    Limited,
    /// Any public address
    Unrestricted,
}

/// Runs one of the commands.
pub(crate) async fn run(command: Command, client: &Client, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Create(args) => shown(&client.post("/v1/environments", &body(args)?).await?, output),
        Command::List { limit } => {
            let rows = client.list("/v1/environments", &[], limit).await?;
            if output.is_json {
                return output.json(&rows);
            }
            output.table(&shape::head(COLUMNS), &shape::rows(&rows, COLUMNS), "There are no environments.")
        }
        Command::Show { environment } => {
            let found = sessions::found(client, "environment", "/v1/environments", &environment).await?;
            shown(&found, output)
        }
    }
}

fn body(args: Create) -> Result<Map<String, Value>, Failure> {
    let networking = match (args.network, args.allow_hosts.is_empty()) {
        (Network::None, true) => json!({"type": "none"}),
        (Network::Unrestricted, true) => json!({"type": "unrestricted"}),
        (Network::Limited, false) => json!({"type": "limited", "allowed_hosts": args.allow_hosts}),
        (Network::Limited, true) => {
            return Err(Failure::usage(
                "--network limited without --allow-host would reach nothing. Name the hosts, or use --network none.",
            ));
        }
        (Network::None | Network::Unrestricted, false) => {
            return Err(Failure::usage("--allow-host goes with --network limited only."));
        }
    };
    let mut config = Map::new();
    config.insert("type".to_owned(), "cloud".into());
    config.insert("networking".to_owned(), networking);
    config.extend(args.image.map(|image| ("image".to_owned(), image.into())));
    if !args.labels.is_empty() {
        config.insert("placement".to_owned(), json!({"labels": args.labels}));
    }
    let mut body = Map::new();
    body.insert("name".to_owned(), args.name.into());
    body.extend(args.description.map(|text| ("description".to_owned(), text.into())));
    body.insert("config".to_owned(), config.into());
    Ok(body)
}

/// The body of an environment of the default image without network.
pub(crate) fn without_network(name: &str) -> Map<String, Value> {
    let config = json!({"type": "cloud", "networking": {"type": "none"}});
    [("name".to_owned(), name.into()), ("config".to_owned(), config)].into_iter().collect()
}

fn shown(environment: &Value, output: &Output) -> Result<(), Failure> {
    if output.is_json { output.json(environment) } else { output.text(&shape::lines(environment, FIELDS)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(network: Network, hosts: &[&str]) -> Result<Map<String, Value>, Failure> {
        body(Create {
            name: "n".into(),
            description: None,
            image: Some("alpine".into()),
            network,
            allow_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            labels: vec![],
        })
    }

    #[test]
    fn the_network_becomes_a_policy() {
        for (network, hosts, want) in [
            (Network::None, &[][..], json!({"type": "none"})),
            (Network::Unrestricted, &[], json!({"type": "unrestricted"})),
            (Network::Limited, &["a.org:443"], json!({"type": "limited", "allowed_hosts": ["a.org:443"]})),
        ] {
            let body = create(network, hosts).unwrap();
            assert_eq!(body["config"], json!({"type": "cloud", "image": "alpine", "networking": want}));
        }
    }

    #[test]
    fn hosts_and_a_network_that_do_not_fit_are_refused() {
        for (network, hosts) in
            [(Network::Limited, &[][..]), (Network::None, &["a.org"]), (Network::Unrestricted, &["a.org"])]
        {
            assert!(create(network, hosts).is_err(), "{network:?}");
        }
    }
}
