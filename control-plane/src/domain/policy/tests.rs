//! The resolution as a table and as laws: order never matters, a denial never allows, narrowing never widens.

use super::*;
use proptest::prelude::*;

fn rule(subject: (SubjectKind, &str), resource: (ResourceKind, &str), disposition: Disposition) -> Rule {
    Rule {
        subject: Subject { kind: subject.0, id_glob: subject.1.to_owned() },
        resource: Resource { kind: resource.0, id_glob: resource.1.to_owned() },
        permission_glob: "*".to_owned(),
        disposition,
        other_responder: false,
        ttl_seconds: None,
    }
}

fn sourced(rules: Vec<Rule>) -> Vec<Sourced> {
    let source = |at: usize| Source::ActionPolicy {
        policy_id: PolicyId::from_bytes([9; 16]),
        name: "p".to_owned(),
        rule: u32::try_from(at).unwrap(),
    };
    rules.into_iter().enumerate().map(|(at, rule)| (source(at), rule)).collect()
}

const GROUPS: [PrincipalId; 1] = [PrincipalId::from_bytes([5; 16])];

fn asked(kind: ResourceKind, id: &str) -> Asked<'_> {
    Asked {
        principal: PrincipalId::from_bytes([1; 16]),
        groups: &GROUPS,
        agent: AgentId::from_bytes([2; 16]),
        session: Some(SessionId::from_bytes([3; 16])),
        kind,
        id,
        permission: INVOKE,
    }
}

#[test]
fn deny_overrules_require_approval_overrules_allow_and_the_defaults_fill_the_rest() {
    use Disposition::{Allow, Deny, RequireApproval};
    use ResourceKind::{CustomTool, McpTool, Tool};
    use SubjectKind::{AgentDefinition, AgentInstallation, Any, Group, Principal, Session};
    let everybody = (Any, "*");
    let bash = (Tool, "bash");
    let principal = PrincipalId::from_bytes([1; 16]).to_string();
    let group = GROUPS[0].to_string();
    let cases: Vec<(Vec<Rule>, Asked<'_>, bool, Disposition)> = vec![
        (vec![], asked(Tool, "read"), true, Allow),
        (vec![], asked(Tool, "bash"), false, RequireApproval),
        (vec![], asked(McpTool, "files/read"), true, RequireApproval),
        (vec![], asked(CustomTool, "lookup"), true, RequireApproval),
        (vec![rule(everybody, bash, Allow)], asked(Tool, "bash"), false, Allow),
        (
            vec![rule(everybody, bash, Allow), rule(everybody, (ResourceKind::Any, "*"), Deny)],
            asked(Tool, "bash"),
            false,
            Deny,
        ),
        (
            vec![rule(everybody, bash, Allow), rule(everybody, bash, RequireApproval)],
            asked(Tool, "bash"),
            false,
            RequireApproval,
        ),
        (vec![rule(everybody, (Tool, "re*"), RequireApproval)], asked(Tool, "read"), true, RequireApproval),
        (vec![rule(everybody, (McpTool, "files/*"), Allow)], asked(McpTool, "files/read"), false, Allow),
        (vec![rule(everybody, (McpTool, "files/*"), Allow)], asked(Tool, "bash"), false, RequireApproval),
        (vec![rule((Principal, &principal), bash, Deny)], asked(Tool, "bash"), false, Deny),
        (vec![rule((Principal, &group), bash, Deny)], asked(Tool, "bash"), false, RequireApproval),
        (vec![rule((Group, &group), bash, Deny)], asked(Tool, "bash"), false, Deny),
        (vec![rule((AgentDefinition, "agent_0202*"), bash, Deny)], asked(Tool, "bash"), false, Deny),
        (vec![rule((Session, "sess_03*"), bash, Deny)], asked(Tool, "bash"), false, Deny),
        (vec![rule((AgentInstallation, "*"), bash, Deny)], asked(Tool, "bash"), false, RequireApproval),
    ];
    for (at, (rules, asked, reads, want)) in cases.into_iter().enumerate() {
        assert_eq!(resolve(&sourced(rules), &asked, reads).disposition, want, "case {at}");
    }
}

#[test]
fn the_strictest_of_the_rules_that_ask_says_how_long_and_who() {
    let asks = rule((SubjectKind::Any, "*"), (ResourceKind::Tool, "*"), Disposition::RequireApproval);
    let rules = sourced(vec![
        Rule { ttl_seconds: Some(600), ..asks.clone() },
        Rule { ttl_seconds: Some(60), other_responder: true, ..asks.clone() },
        asks,
    ]);
    let resolved = resolve(&rules, &asked(ResourceKind::Tool, "bash"), false);
    assert_eq!((resolved.ttl_seconds, resolved.other_responder), (Some(60), true));
    assert!(matches!(resolved.by, Source::ActionPolicy { rule: 0, .. }));
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let subject = prop_oneof![
        Just((SubjectKind::Any, "*".to_owned())),
        Just((SubjectKind::Principal, "prin_01*".to_owned())),
        Just((SubjectKind::Group, "*".to_owned())),
        Just((SubjectKind::Session, "sess_9*".to_owned())),
    ];
    let kind = prop::sample::select(ResourceKind::ALL);
    let name = prop::sample::select(vec!["*", "bash", "re*", "?ash", "read"]);
    let disposition = prop::sample::select(Disposition::ALL);
    (subject, kind, name, disposition).prop_map(|(subject, kind, name, disposition)| {
        rule((subject.0, &subject.1), (kind, name), disposition)
    })
}

fn any_asked() -> impl Strategy<Value = Asked<'static>> {
    let kind =
        prop::sample::select(vec![ResourceKind::Tool, ResourceKind::CustomTool, ResourceKind::McpTool]);
    (kind, prop::sample::select(vec!["bash", "read", "other"])).prop_map(|(kind, id)| asked(kind, id))
}

proptest! {
    #[test]
    fn the_order_of_rules_never_matters(rules in prop::collection::vec(any_rule(), 0..8), asked in any_asked(), reads: bool, turn in 0usize..8) {
        let rules = sourced(rules);
        let mut turned = rules.clone();
        if !turned.is_empty() {
            let by = turn % turned.len();
            turned.rotate_left(by);
        }
        turned.reverse();
        prop_assert_eq!(resolve(&rules, &asked, reads), resolve(&turned, &asked, reads));
    }

    #[test]
    fn adding_a_deny_never_allows(rules in prop::collection::vec(any_rule(), 0..8), added in any_rule(), asked in any_asked(), reads: bool) {
        let before = resolve(&sourced(rules.clone()), &asked, reads);
        let mut more = rules;
        more.push(Rule { disposition: Disposition::Deny, ..added });
        let after = resolve(&sourced(more), &asked, reads);
        prop_assert!(after.disposition >= before.disposition);
    }

    #[test]
    fn narrowing_an_allow_never_widens(rules in prop::collection::vec(any_rule(), 1..8), at in 0usize..8, asked in any_asked(), reads: bool) {
        let mut rules = rules;
        let at = at % rules.len();
        rules[at].disposition = Disposition::Allow;
        let before = resolve(&sourced(rules.clone()), &asked, reads);
        rules[at].resource.id_glob = format!("{}x", rules[at].resource.id_glob);
        let narrowed = resolve(&sourced(rules.clone()), &asked, reads);
        rules.remove(at);
        let gone = resolve(&sourced(rules), &asked, reads);
        prop_assert!(gone.disposition >= before.disposition);
        // The narrowed pattern may match another name than before, and none of the names asked for here ends in `x`.
        prop_assert!(narrowed.disposition >= before.disposition);
    }

    #[test]
    fn an_mcp_tool_is_allowed_by_a_policy_only(rules in prop::collection::vec(any_rule(), 0..8), reads: bool) {
        let rules = sourced(rules);
        let resolved = resolve(&rules, &asked(ResourceKind::McpTool, "read"), reads);
        if resolved.disposition == Disposition::Allow {
            let from_policy = matches!(resolved.by, Source::ActionPolicy { .. });
            prop_assert!(from_policy);
        }
    }
}
