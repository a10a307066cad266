//! Where a model request goes: routes, the next candidate, and the custody of each provider's key.

use super::*;
use crate::{
    gateway::provider::Kind,
    registry::{NewProvider, Once, RouteCandidate, RouteChange},
};
use checkfu_shared::{id::ProviderId, time::Clock};

impl Bench {
    /// A provider of its own workspace at `url`.
    async fn provider(&self, name: &str, url: &str, key: &str) -> ProviderId {
        let new = NewProvider {
            name: name.into(),
            kind: Kind::Anthropic,
            base_url: url.into(),
            key: Some(Secret::new(key)),
            allow_private: true,
        };
        let workspace = self.runner.workspace_id;
        let made = self.plane.registry.create_provider(workspace, new, Once::NEVER, self.clock.now()).await;
        let made: Value = serde_json::from_str(&made.unwrap()).unwrap();
        made["id"].as_str().unwrap().parse().unwrap()
    }

    /// A route by the name of the agent's model.
    async fn route(&self, candidates: Vec<(Option<ProviderId>, &str)>) {
        let candidates = candidates.into_iter().map(|(provider_id, model)| RouteCandidate {
            provider_id,
            model: model.into(),
            effort: None,
            price: None,
            context_window_tokens: None,
        });
        let new = RouteChange { name: "pinned".into(), candidates: candidates.collect() };
        let workspace = self.runner.workspace_id;
        self.plane.registry.create_route(workspace, new, Once::NEVER, self.clock.now()).await.unwrap();
    }
}

async fn serving(answering: Answering) -> (String, Provided) {
    let provided = Provided { answering, asked: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/v1/messages", post(provide)).with_state(provided.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, provided)
}

#[tokio::test]
async fn the_next_candidate_answers_when_one_cannot_and_each_gets_its_own_key_and_name() {
    let bench = Bench::new(Answering::Stream).await;
    let (busy_url, busy) = serving(Answering::Busy).await;
    let (echo_url, echo) = serving(Answering::EchoKey).await;
    let gone = bench.provider("gone", "http://127.0.0.1:9", "sk-canary-gone").await;
    let busy_id = bench.provider("busy", &busy_url, "sk-canary-busy").await;
    let echo_id = bench.provider("echo", &echo_url, "sk-canary-echo").await;
    bench
        .route(vec![(Some(gone), "g"), (Some(busy_id), "b"), (Some(echo_id), "e"), (None, "built-in")])
        .await;
    let response = bench.ask_well().await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response).await, format!("{START}{STOP}"));
    for (provided, key, model) in
        [(&busy, "sk-canary-busy", "b"), (&echo, "sk-canary-echo", "e"), (&bench.provided, KEY, "built-in")]
    {
        let asked = provided.asked.lock().unwrap();
        assert_eq!((asked.len(), asked[0].0["x-api-key"].to_str().unwrap()), (1, key));
        assert_eq!(asked[0].1["model"], model);
    }
}

#[tokio::test]
async fn what_the_last_candidate_says_is_the_answer() {
    let bench = Bench::new(Answering::Stream).await;
    let (url, _) = serving(Answering::Busy).await;
    let busy = bench.provider("busy", &url, "sk-canary-busy").await;
    bench.route(vec![(Some(busy), "b")]).await;
    let response = bench.ask_well().await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (529, &"7".parse().unwrap())
    );
    assert!(bench.provided.asked.lock().unwrap().is_empty());
    bench.plane.registry.archive_provider(bench.runner.workspace_id, busy, bench.clock.now()).await.unwrap();
    assert_eq!(code(bench.ask_well().await).await, Code::ProviderMissing);
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_the_request_of_the_provider() {
    let bench = Bench::new(Answering::Hang).await;
    let response = bench.ask_well().await;
    let id = request_id(&response);
    assert_eq!(bench.plane.gateway.0.relays.len(), 1);
    let mut body = response.into_body().into_data_stream();
    assert_eq!(body.next().await.unwrap().unwrap(), START);
    drop(body);
    // The relay ends, and with it its connection; what was seen is on record.
    bench.plane.gateway.0.relays.close();
    bench.plane.gateway.0.relays.wait().await;
    assert!(bench.recorded(id).await.is_some());
}
