//! Conversations that grow beyond the model's window, and those that are summed up before they do.

use super::*;
use serde_json::Value;

fn counted(scripted: Scripted, input_tokens: u64) -> Scripted {
    match scripted {
        Scripted::Reply(reply) => {
            Scripted::Reply(Reply { usage: ModelUsage { input_tokens, ..ModelUsage::default() }, ..reply })
        }
        other => other,
    }
}

fn small(replies: Vec<Scripted>) -> Stage {
    let context = ContextLimits { window_tokens: 1_000, compact_at_percent: 80 };
    Stage { context, ..Stage::new(replies) }
}

fn texts(body: &Value) -> String {
    body["messages"].to_string()
}

#[tokio::test]
async fn at_its_share_of_the_window_a_conversation_goes_on_from_its_summary() {
    let first = counted(calls(vec![bash("a")]), 850);
    let stage = small(vec![first, says("SUMMARY: a was run"), counted(says("done"), 10), says("again")]);
    stage.say("the first wish");
    stage.world().outcomes = [Ok(Outcome::text("RESULT"))].into();
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    assert_eq!(
        stage.kinds()[5..],
        [
            "agent.tool_result",
            "span.model_request_start",
            "span.model_request_end",
            "agent.thread_context_compacted",
            "span.model_request_start",
            "agent.message",
            "span.model_request_end",
        ]
    );
    {
        let world = stage.world();
        assert!(
            texts(&world.asked[1]).contains("RESULT")
                && texts(&world.asked[1]).contains("about to be shortened")
        );
        let after = texts(&world.asked[2]);
        assert!(after.contains("SUMMARY: a was run"), "{after}");
        assert!(!after.contains("RESULT") && !after.contains("the first wish"), "{after}");
        assert_eq!(world.asked[1]["tools"], world.asked[0]["tools"]);
        assert!(world.previews.is_empty());
    }
    // Another runner reads the log and goes on from the summary; the scene checks that it asks the same.
    stage.say("and now");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    let world = stage.world();
    let last = texts(&world.asked[3]);
    assert!(last.contains("SUMMARY") && last.contains("done") && last.contains("and now"), "{last}");
}

#[tokio::test]
async fn what_was_said_last_is_kept_word_by_word() {
    let stage = small(vec![counted(says("hello"), 900), says("SUMMARY"), says("done")]);
    stage.say("old");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    stage.say("the very latest wish");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    let world = stage.world();
    let after = texts(&world.asked[2]);
    assert!(
        after.contains("SUMMARY") && after.contains("the very latest wish") && !after.contains("old"),
        "{after}"
    );
}

/// A session whose model said something, and is asked again with these replies to come.
async fn later(replies: Vec<Scripted>) -> Stage {
    let stage = Stage::new([vec![says("hello")], replies].into_iter().flatten().collect());
    stage.say("hi");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
    stage.say("go");
    stage
}

#[tokio::test]
async fn a_conversation_that_does_not_fit_is_summed_up_and_asked_again() {
    let full = || reply(vec![Part::Text { block: 0, text: "cut".into() }], Ending::ContextLimit);
    for first in [Scripted::Fails(Failure::TooLong), full()] {
        let stage = later(vec![first, says("SUMMARY"), says("done")]).await;
        assert_eq!(stage.claim().await, Ok(SettledOutcome::EndTurn));
        let kinds = stage.kinds();
        assert_eq!(kinds.iter().filter(|kind| **kind == "agent.thread_context_compacted").count(), 1);
        assert_eq!(kinds.iter().filter(|kind| **kind == "agent.message").count(), 2, "{kinds:?}");
        assert!(stage.errors().is_empty());
    }
}

#[tokio::test]
async fn a_conversation_that_cannot_be_summed_up_ends_with_what_to_do() {
    let too_long = || Scripted::Fails(Failure::TooLong);
    for replies in [vec![too_long(), too_long()], vec![too_long(), says(" ")]] {
        let stage = later(replies).await;
        assert_eq!(stage.claim().await, Ok(SettledOutcome::RetriesExhausted));
        assert_eq!(stage.errors().last().unwrap().1, RetryStatus::Exhausted);
    }
    // There is nothing to sum up but the message itself.
    let stage = Stage::new(vec![too_long()]);
    stage.say("a very long message");
    assert_eq!(stage.claim().await, Ok(SettledOutcome::RetriesExhausted));
}
