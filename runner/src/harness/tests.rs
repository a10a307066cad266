//! Whole turns of a session, claim by claim, over a scripted log, sandbox and model.

mod compaction;
mod stage;

use super::{transcript::OUTPUT_TRUNCATED, *};
use crate::model::{Failure, Part, Reply, Stop as Ending};
use checkfu_shared::{
    content::Block,
    event::{Confirmation, ModelUsage, ToolConfirmation},
};
use checkfu_toolbox::call;
use serde_json::json;
use stage::{Scripted, Stage};

fn reply(parts: Vec<Part>, stop: Ending) -> Scripted {
    Scripted::Reply(Reply { parts, stop, request_id: Some("mreq".into()), usage: ModelUsage::default() })
}

fn says(text: &str) -> Scripted {
    reply(vec![Part::Text { block: 0, text: text.into() }], Ending::Done)
}

fn bash(command: &str) -> Part {
    Part::Call { name: "bash".into(), input: json!({"command": command}) }
}

fn calls(parts: Vec<Part>) -> Scripted {
    reply(parts, Ending::Done)
}

fn overloaded() -> Scripted {
    Scripted::Fails(Failure::Retry { kind: "model_overloaded_error", message: "busy".into(), after_ms: None })
}

#[tokio::test]
async fn a_turn_runs_its_calls_and_ends_in_the_documented_order() {
    let stage = Stage::new(vec![calls(vec![bash("a"), bash("b")]), says("done")]);
    stage.say("go");
    stage.world().outcomes = [Ok(Outcome::text("A")), Ok(Outcome::text("B"))].into();
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    assert_eq!(
        stage.kinds(),
        [
            "user.message",
            "session.input_processed",
            "span.model_request_start",
            "agent.tool_use",
            "agent.tool_use",
            "span.model_request_end",
            "agent.tool_result",
            "agent.tool_result",
            "span.model_request_start",
            "agent.message",
            "span.model_request_end",
        ]
    );
    assert_eq!(stage.results(), [("A".to_owned(), false), ("B".to_owned(), false)]);
    let world = stage.world();
    assert_eq!(world.acknowledged, world.ran);
}

#[tokio::test]
async fn a_follow_up_message_steers_the_running_turn() {
    let stage = Stage::new(vec![calls(vec![bash("hang")]), says("ok")]);
    stage.say("go");
    let driving = async {
        stage.scene.reached.notified().await;
        stage.say("rather this");
        stage.scene.cancelled.notify_waiters();
    };
    let (outcome, ()) = tokio::join!(stage.claim(), driving);
    assert_eq!(outcome, Ok(SettledOutcome::EndTurn));
    let world = stage.world();
    let last = world.asked.last().unwrap()["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["content"][1]["text"], "rather this");
}

#[tokio::test]
async fn nothing_to_do_ends_the_turn_without_asking_the_model() {
    let stage = Stage::new(vec![]);
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    assert_eq!(stage.kinds(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_call_that_asks_suspends_after_the_others_ran_and_goes_on_once_approved() {
    let look = Part::Call { name: "read".into(), input: json!({"file_path": "a"}) };
    let stage = Stage::new(vec![calls(vec![bash("a"), look]), says("done")]);
    stage.say("go");
    stage.world().asks.insert("bash".into());
    assert_eq!(stage.claim().await, Ok(SettledOutcome::RequiresAction));
    assert_eq!(stage.results().len(), 1, "the reading call ran");
    let asking = Transcript::rebuild(&stage.world().events).open_calls().next().unwrap().id;
    stage.input(Body::UserToolConfirmation(ToolConfirmation {
        tool_use_id: asking,
        result: Confirmation::Allow,
        deny_message: None,
    }));
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    assert_eq!(stage.world().ran.last(), Some(&asking));
    assert!(stage.kinds().contains(&"agent.tool_resumed"));
}

#[tokio::test]
async fn denied_calls_never_run_and_the_model_reads_why() {
    let stage = Stage::new(vec![calls(vec![bash("a")]), says("then not")]);
    stage.say("go");
    stage.world().denies.insert("bash".into());
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    let results = stage.results();
    assert!(results[0].0.contains("the policy says so") && results[0].1);
    assert!(stage.world().ran.is_empty());
}

#[tokio::test]
async fn a_custom_tool_suspends_until_the_application_answers() {
    let proposal = Part::Call { name: "look_up".into(), input: json!({}) };
    let stage = Stage::new(vec![calls(vec![proposal]), says("done")]);
    stage.say("go");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::RequiresAction));
    let shown = stage
        .world()
        .events
        .iter()
        .find(|event| matches!(event.body, Body::AgentCustomToolUse { .. }))
        .map(|event| event.id)
        .unwrap();
    stage.input(Body::UserCustomToolResult {
        custom_tool_use_id: shown,
        content: vec![Block::text("found")],
        is_error: false,
    });
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    assert!(stage.world().ran.is_empty() && stage.results().is_empty());
    assert_eq!(stage.world().opened, 0, "no sandbox is needed for it");
}

#[tokio::test]
async fn an_interrupt_ends_running_calls_with_their_partial_output() {
    let stage = Stage::new(vec![calls(vec![bash("hang"), bash("b")])]);
    stage.say("go");
    let interrupting = async {
        stage.scene.reached.notified().await;
        stage.interrupt();
    };
    let (outcome, ()) = tokio::join!(stage.claim(), interrupting);
    assert_eq!(outcome, Ok(SettledOutcome::EndTurn));
    let results = stage.results();
    assert!(results[0].0.starts_with("interrupted") && results[0].0.contains("partial") && results[0].1);
    assert_eq!(results.len(), 2);
    assert_eq!(stage.kinds().last(), Some(&"session.input_processed"));
}

#[tokio::test]
async fn an_interrupt_drops_the_reply_being_streamed() {
    let stage = Stage::new(vec![Scripted::Hangs]);
    stage.say("go");
    let interrupting = async {
        stage.scene.reached.notified().await;
        stage.interrupt();
        stage.say("instead");
    };
    let (outcome, ()) = tokio::join!(stage.claim(), interrupting);
    assert_eq!(outcome, Ok(SettledOutcome::EndTurn));
    assert_eq!(stage.world().previews.len(), 1);
    assert_eq!(
        stage.kinds()[2..],
        [
            "span.model_request_start",
            "user.interrupt",
            "user.message",
            "span.model_request_end",
            "session.input_processed"
        ]
    );
    let rebuilt = Transcript::rebuild(&stage.world().events);
    assert_eq!(rebuilt.waiting().count(), 1, "what was said after the interrupt starts the next run");
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_repeated_and_seen() {
    let stage = Stage::new(vec![overloaded(), overloaded(), says("at last")]);
    stage.say("go");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    let retrying = ("model_overloaded_error".to_owned(), RetryStatus::Retrying);
    assert_eq!(stage.errors(), [retrying.clone(), retrying]);
}

#[tokio::test(start_paused = true)]
async fn retries_end_after_a_bounded_number() {
    let stage = Stage::new((0..20).map(|_| overloaded()).collect());
    stage.say("go");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::RetriesExhausted));
    assert_eq!(stage.errors().len(), 8);
    assert_eq!(stage.errors().last().unwrap().1, RetryStatus::Exhausted);
}

#[tokio::test]
async fn each_other_failure_has_its_outcome() {
    let fatal = Failure::Fatal { kind: "model_request_failed_error", message: "no".into() };
    for (failure, want) in [
        (fatal, Ok(SettledOutcome::RetriesExhausted)),
        (Failure::Budget, Ok(SettledOutcome::BudgetReached)),
        (Failure::Fenced, Err(Halt::Lost)),
    ] {
        let stage = Stage::new(vec![Scripted::Fails(failure)]);
        stage.say("go");
        assert_eq!(stage.claim().await, want);
    }
    let stage = Stage::new(vec![reply(vec![bash("a")], Ending::Refusal)]);
    stage.say("go");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::Refusal));
    assert!(stage.world().ran.is_empty());
}

#[tokio::test]
async fn a_reply_cut_at_the_output_limit_goes_on_but_not_for_ever() {
    let cut = || reply(vec![Part::Broken { name: "bash".into() }], Ending::OutputLimit);
    let stage = Stage::new(vec![cut(), says("smaller")]);
    stage.say("go");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    assert_eq!(stage.errors()[0].0, OUTPUT_TRUNCATED);
    let stage = Stage::new((0..20).map(|_| cut()).collect());
    stage.say("go");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::RetriesExhausted));
}

/// A session whose runner died after the call was allowed.
fn after_a_crash(known: Option<Known>) -> (Stage, EventId) {
    let stage = Stage::new(vec![says("done")]);
    let said = stage.say("go");
    let start = EventId::mint();
    let mut world = stage.world();
    let reply =
        Reply { parts: vec![bash("a")], stop: Ending::Done, request_id: None, usage: ModelUsage::default() };
    let logged = turn::log_reply(reply, start, &std::collections::HashMap::new(), |_| false);
    let call = logged.calls[0];
    world.take(turn::fresh(Body::SessionInputProcessed { event_ids: vec![said] }));
    world.take(turn::appended(start, Body::SpanModelRequestStart {}));
    logged.events.into_iter().for_each(|event| world.take(event));
    world.decided.clear();
    world.known = known;
    drop(world);
    (stage, call)
}

#[tokio::test]
async fn a_call_of_a_lost_runner_is_delivered_resumed_or_told_as_interrupted() {
    for (known, want, runs) in [
        (Some(Known::Kept), "collected", false),
        (Some(Known::Never), "done", true),
        (Some(Known::Unclear), turn::LOST_RUNNER, false),
    ] {
        let (stage, call) = after_a_crash(known);
        assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
        assert_eq!(stage.results()[0].0, want);
        assert_eq!(stage.world().ran.contains(&call), runs);
        assert_eq!(stage.kinds().contains(&"agent.tool_resumed"), runs);
    }
}

#[tokio::test]
async fn a_lost_sandbox_is_replaced_once_and_the_model_is_told() {
    let stage = Stage::new(vec![calls(vec![bash("a")]), calls(vec![bash("b")]), says("done")]);
    stage.say("go");
    let replaced = News {
        event: Some(Body::SandboxReplaced { reason: "gone".into() }),
        notice: Some("(a new sandbox)".into()),
    };
    stage.world().openings = [Ok(News::default()), Ok(replaced)].into();
    stage.world().outcomes = [Err(Trouble::Lost("removed".into()))].into();
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    let results = stage.results();
    assert!(results[0].0.contains("sandbox_lost") && results[0].1);
    assert_eq!(results[1].0, "(a new sandbox)|done");
    let kinds = stage.kinds();
    assert!(kinds.contains(&"sandbox.lost") && kinds.contains(&"sandbox.replaced"));
}

#[tokio::test]
async fn a_sandbox_lost_again_ends_the_turn() {
    let stage = Stage::new(vec![calls(vec![bash("a")]), calls(vec![bash("b")])]);
    stage.say("go");
    stage.world().outcomes = [Err(Trouble::Lost("x".into())), Err(Trouble::Lost("x".into()))].into();
    assert!(matches!(stage.claim().await, Ok(SettledOutcome::Failed { .. })));
}

#[tokio::test]
async fn without_any_sandbox_to_be_had_the_calls_are_closed_and_the_end_says_why() {
    let stage = Stage::new(vec![calls(vec![bash("a")])]);
    stage.say("go");
    stage.world().openings = [Err(Trouble::Hopeless("no such image".to_owned()))].into();
    let outcome = stage.claim().await;
    assert!(
        matches!(&outcome, Ok(SettledOutcome::Failed { message }) if message.contains("image")),
        "{outcome:?}"
    );
    assert!(stage.results()[0].1 && stage.world().ran.is_empty());
}

#[tokio::test]
async fn while_docker_is_away_the_run_goes_back_with_its_calls_open_for_the_next_attempt() {
    let stage = Stage::new(vec![calls(vec![bash("a")]), says("done")]);
    stage.say("go");
    stage.world().openings = [Err(Trouble::Away("docker is away".to_owned()))].into();
    let outcome = stage.claim().await;
    assert!(matches!(outcome, Ok(SettledOutcome::Released { counts_as_attempt: true, .. })), "{outcome:?}");
    assert!(stage.results().is_empty());
    stage.world().known = Some(Known::Never);
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    assert_eq!(stage.results(), [("done".to_owned(), false)]);
}

#[tokio::test]
async fn draining_lets_the_run_end() {
    let stage = Stage::new(vec![calls(vec![bash("hang")]), says("done")]);
    stage.say("go");
    let draining = async {
        stage.scene.reached.notified().await;
        stage.orders.send_modify(|orders| orders.stop = Stop::Drain);
        stage.scene.cancelled.notify_waiters();
    };
    let (outcome, ()) = tokio::join!(stage.claim(), draining);
    assert_eq!(outcome, Ok(SettledOutcome::EndTurn));
    assert_eq!(stage.results().len(), 1);
}

#[tokio::test]
async fn stopping_ends_running_calls_and_begins_no_more() {
    let many = (0..20).map(|_| bash("hang")).collect();
    let stage = Stage::new(vec![calls(many)]);
    stage.say("go");
    let stopping = async {
        stage.scene.reached.notified().await;
        stage.orders.send_modify(|orders| orders.stop = Stop::Cancel);
    };
    let (outcome, ()) = tokio::join!(stage.claim(), stopping);
    assert!(matches!(outcome, Ok(SettledOutcome::Released { counts_as_attempt: false, .. })), "{outcome:?}");
    let results = stage.results();
    assert_eq!(results.len(), 20);
    assert!(results.iter().all(|(text, is_error)| text.starts_with("interrupted") && *is_error));
    assert_eq!(stage.world().ran.len(), 16);
}

#[tokio::test]
async fn nothing_is_asked_or_run_while_the_lease_is_frozen() {
    let stage = Stage::new(vec![says("hi")]);
    stage.say("go");
    stage.held.send_replace(State::Frozen);
    let claim = stage.claim();
    let mut claim = std::pin::pin!(claim);
    assert!(futures_util::poll!(&mut claim).is_pending());
    assert!(stage.world().asked.is_empty());
    let far = BootInstant::now().plus_ms(3_600_000);
    stage.held.send_replace(State::Held { until: far, ends: far });
    assert_eq!(claim.await, Ok(SettledOutcome::EndTurn));
}

#[tokio::test]
async fn a_tool_input_that_does_not_fit_is_an_error_the_model_can_read() {
    let wrong = Part::Call { name: "read".into(), input: json!({"path": 3}) };
    let stage = Stage::new(vec![calls(vec![wrong]), says("sorry")]);
    stage.say("go");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    assert!(stage.results()[0].0.contains("missing field `file_path`"));
}

#[test]
fn the_toolboxs_words_for_an_empty_result_are_ours() {
    assert_eq!(Outcome::text("").content, [call::Block::Text { text: "(no output)".into() }]);
}
