//! What is billed and when no more is asked: prices, cut replies, budgets, and what the log tells of it.

use super::*;
use crate::{
    domain::budget::{Limit, Metric},
    engine::{BudgetChange, BudgetRecord, SessionRecord},
    gateway::price::Price,
    record::Status,
    registry::{Once, RouteCandidate, RouteChange},
};
use checkfu_shared::{
    event::{SettledOutcome, StopReason},
    id::EventId,
    protocol::{
        append::{AppendRequest, Appended},
        settlement::Settle,
    },
    time::Clock,
};

/// 5 tokens of input and 1 of output, which every streamed reply here has, cost 5 + 100.
const PRICE: Price = Price { input: 1_000_000, output: 100_000_000, cache_read: 0, cache_write: 0 };
const COST: u64 = 105;

impl Bench {
    async fn priced(&self) {
        let candidate = RouteCandidate {
            provider_id: None,
            model: "pinned".into(),
            effort: None,
            price: Some(PRICE),
            context_window_tokens: None,
        };
        let new = RouteChange { name: "pinned".into(), candidates: vec![candidate] };
        let workspace = self.runner.workspace_id;
        self.plane.registry.create_route(workspace, new, Once::NEVER, self.clock.now()).await.unwrap();
    }

    async fn limited(&self, metric: Metric, amount: u64) -> BudgetRecord {
        let limit = Limit { metric, amount };
        let workspace = self.runner.workspace_id;
        self.plane.engine.create_budget(workspace, self.claim.session_id, limit).await.unwrap()
    }

    async fn session(&self) -> SessionRecord {
        self.plane.engine.session(self.runner.workspace_id, self.claim.session_id).await.unwrap().unwrap()
    }

    /// One whole reply, read to its end.
    async fn spend(&self) -> String {
        let response = self.ask_well().await;
        let id = request_id(&response);
        assert_eq!(text(response).await, format!("{START}{STOP}"));
        id
    }

    async fn append(&self, first: u64, events: Vec<Appended>) {
        let request = AppendRequest { epoch: self.claim.epoch, first, events };
        self.plane.engine.append(self.runner, self.claim.id, request).await.unwrap();
    }

    async fn settle(&self, events: u64, outcome: SettledOutcome) {
        let settle = Settle {
            epoch: self.claim.epoch,
            events,
            outcome,
            settlement_id: None,
            files: vec![],
            keeps_sandbox: false,
        };
        self.plane.engine.settle(self.runner, self.claim.id, settle).await.unwrap();
    }

    async fn ends(&self) -> Vec<Value> {
        let query = crate::engine::EventQuery {
            types: vec!["span.model_request_end".into()],
            limit: 100,
            ..Default::default()
        };
        let events = self.plane.engine.events(self.claim.session_id, query).await.unwrap();
        events.iter().map(|event| serde_json::from_str(&event.json).unwrap()).collect()
    }
}

fn started() -> Appended {
    let body = EventBody::SpanModelRequestStart {};
    Appended { id: EventId::mint(), thread_id: None, model_request_id: None, body }
}

fn ended(start: EventId, request: &str) -> Appended {
    let body = EventBody::SpanModelRequestEnd {
        model_request_start_id: start,
        model_usage: ModelUsage { output_tokens: 999, ..ModelUsage::default() },
        is_error: false,
        bill: None,
    };
    Appended { id: EventId::mint(), thread_id: None, model_request_id: Some(request.to_owned()), body }
}

#[tokio::test]
async fn the_log_tells_what_the_gateway_counted_and_what_it_cost_once() {
    let bench = Bench::new(Answering::Stream).await;
    bench.priced().await;
    let id = bench.spend().await;
    let start = started();
    let start_id = start.id;
    bench.append(0, vec![start, ended(start_id, &id), ended(start_id, &id)]).await;
    let ends = bench.ends().await;
    assert_eq!(
        (&ends[0]["model_usage"]["input_tokens"], &ends[0]["model_usage"]["output_tokens"]),
        (&json!(5), &json!(1))
    );
    assert_eq!(
        ends[0]["bill"],
        json!({"model": "pinned", "list_cost_micro_usd": COST, "dropped": ["service_tier"]})
    );
    assert_eq!((&ends[1]["model_usage"]["output_tokens"], ends[1].get("bill")), (&json!(0), None));
    assert_eq!(bench.session().await.usage.input_tokens, 5);
}

#[tokio::test]
async fn a_spent_budget_pauses_the_session_and_raising_it_lets_it_go_on_by_itself() {
    let bench = Bench::new(Answering::Stream).await;
    bench.priced().await;
    let budget = bench.limited(Metric::ModelSpend, COST + 1).await;
    bench.spend().await;
    // One micro-USD is left: the next call is made, completes, and is billed.
    bench.spend().await;
    let refused = bench.ask_well().await;
    assert_eq!(refused.headers()["x-should-retry"], "false");
    assert_eq!(code(refused).await, Code::BudgetReached);
    assert_eq!(bench.provided.asked.lock().unwrap().len(), 2);
    bench.append(0, vec![started()]).await;
    bench.settle(1, SettledOutcome::BudgetReached).await;
    let session = bench.session().await;
    assert_eq!((session.status, session.stop_reason), (Status::Idle, Some(StopReason::BudgetReached)));
    // Nobody told of the two requests, so the settlement did.
    assert_eq!(session.usage.input_tokens, 10);
    assert_eq!(bench.ends().await[0]["bill"]["list_cost_micro_usd"], 2 * COST);
    let engine = &bench.plane.engine;
    let workspace = bench.runner.workspace_id;
    let low = engine.change_budget(workspace, budget.id, BudgetChange::Raise(2 * COST)).await.unwrap_err();
    assert_eq!(low.details["reason"], "budget_not_raised");
    let raised = engine.change_budget(workspace, budget.id, BudgetChange::Raise(2 * COST + 1)).await.unwrap();
    assert_eq!((raised.used, raised.limit.amount), (2 * COST, 2 * COST + 1));
    assert_eq!(bench.session().await.status, Status::Running);
}

#[tokio::test]
async fn a_budget_of_tokens_counts_them_and_a_paused_one_limits_nothing() {
    let bench = Bench::new(Answering::Stream).await;
    let budget = bench.limited(Metric::ModelTokens, 6).await;
    bench.spend().await;
    assert_eq!(code(bench.ask_well().await).await, Code::BudgetReached);
    let (engine, workspace) = (&bench.plane.engine, bench.runner.workspace_id);
    assert_eq!(engine.budget(workspace, budget.id).await.unwrap().used, 6);
    engine.change_budget(workspace, budget.id, BudgetChange::Pause).await.unwrap();
    assert!(bench.session().await.budget.is_none());
    bench.spend().await;
    engine.change_budget(workspace, budget.id, BudgetChange::Resume).await.unwrap();
    assert_eq!(code(bench.ask_well().await).await, Code::BudgetReached);
}

#[tokio::test]
async fn money_as_a_limit_needs_a_price() {
    let bench = Bench::new(Answering::Stream).await;
    bench.limited(Metric::ModelSpend, 1).await;
    let refused = bench.ask_well().await;
    let problem = Problem::from_body(&serde_json::from_str(&text(refused).await).unwrap()).unwrap();
    assert_eq!(problem.details["reason"], "model_not_budgetable");
    assert!(bench.provided.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_cut_reply_is_billed_by_what_was_seen_and_says_so() {
    let bench = Bench::new(Answering::Hang).await;
    bench.priced().await;
    let response = bench.ask_well().await;
    let id = request_id(&response);
    let mut body = response.into_body().into_data_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), START);
    drop(body);
    bench.plane.gateway.close().await;
    let start = started();
    let start_id = start.id;
    bench.append(0, vec![start, ended(start_id, &id)]).await;
    let ends = bench.ends().await;
    assert_eq!(
        (&ends[0]["bill"]["is_cut"], &ends[0]["bill"]["list_cost_micro_usd"]),
        (&json!(true), &json!(COST))
    );
}

#[tokio::test]
async fn a_capability_is_refused_after_its_claim_settled() {
    let bench = Bench::new(Answering::Stream).await;
    bench.spend().await;
    bench.settle(0, SettledOutcome::EndTurn).await;
    assert_eq!(code(bench.ask_well().await).await, Code::Fenced);
    assert_eq!(bench.provided.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn one_claim_cannot_ask_without_end_at_once() {
    let bench = Bench::new(Answering::Hang).await;
    let mut held = Vec::new();
    for _ in 0..places::PER_CLAIM_MAX {
        held.push(bench.ask_well().await);
    }
    let refused = bench.ask_well().await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    drop(held);
    bench.plane.gateway.close().await;
}
