//! The one table of routes: each is registered with the guard that it stands behind, and the guard is applied here, before
//! the handler. A request for which the table has no row reaches no handler, so no route is ever unguarded.

use super::{
    Plane,
    auth::{self, Caller},
    reply::{self, Refusal},
};
use crate::{
    audit::{self, Act, Outcome},
    domain::grant::{self, Kind, Permission},
};
use axum::{
    Router,
    extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State},
    handler::Handler,
    http::{HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use checkfu_shared::problem::{Code, Problem};
use std::{collections::HashMap, sync::Arc};

/// What a request must show before its handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Nothing: health, and what a runner does before it has a token.
    Open,
    /// An API key that is good; whatever its principal may do.
    AnyKey,
    /// An API key whose principal has a permission.
    Key(Permission, On),
    /// A runner's token.
    Runner,
    /// A claim's capability, which the gateway itself looks at.
    Capability,
}

/// Which resource a permission has to cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The kind as a whole: lists, and making new ones.
    All(Kind),
    /// The one that this parameter of the path names.
    Named(Kind, &'static str),
    /// Any of the kind; the handler knows which and checks that one.
    Some(Kind),
}

impl Guard {
    /// A permission on a kind as a whole.
    #[must_use]
    pub const fn all(permission: Permission, kind: Kind) -> Self {
        Self::Key(permission, On::All(kind))
    }

    /// A permission on the resource that a parameter of the path names.
    #[must_use]
    pub const fn named(permission: Permission, kind: Kind, param: &'static str) -> Self {
        Self::Key(permission, On::Named(kind, param))
    }

    /// A permission on something of a kind; the handler checks on what.
    #[must_use]
    pub const fn some(permission: Permission, kind: Kind) -> Self {
        Self::Key(permission, On::Some(kind))
    }
}

/// One row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The method.
    pub method: Method,
    /// The path with its parameters in braces.
    pub path: String,
    /// What stands before it.
    pub guard: Guard,
}

/// Routes on their way into the table.
#[derive(Debug, Default)]
pub struct Routes {
    router: Router<Plane>,
    rows: Vec<Row>,
}

impl Routes {
    /// No routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a `GET`.
    #[must_use]
    pub fn get<T: 'static>(self, path: &str, guard: Guard, handler: impl Handler<T, Plane>) -> Self {
        self.add(Method::GET, MethodFilter::GET, path, guard, handler)
    }

    /// Adds a `POST`.
    #[must_use]
    pub fn post<T: 'static>(self, path: &str, guard: Guard, handler: impl Handler<T, Plane>) -> Self {
        self.add(Method::POST, MethodFilter::POST, path, guard, handler)
    }

    /// Adds a `PUT`.
    #[must_use]
    pub fn put<T: 'static>(self, path: &str, guard: Guard, handler: impl Handler<T, Plane>) -> Self {
        self.add(Method::PUT, MethodFilter::PUT, path, guard, handler)
    }

    /// Adds a `DELETE`.
    #[must_use]
    pub fn delete<T: 'static>(self, path: &str, guard: Guard, handler: impl Handler<T, Plane>) -> Self {
        self.add(Method::DELETE, MethodFilter::DELETE, path, guard, handler)
    }

    /// Adds a `HEAD` that is no `GET` without its body.
    #[must_use]
    pub fn head<T: 'static>(self, path: &str, guard: Guard, handler: impl Handler<T, Plane>) -> Self {
        self.add(Method::HEAD, MethodFilter::HEAD, path, guard, handler)
    }

    fn add<T: 'static>(
        mut self,
        method: Method,
        filter: MethodFilter,
        path: &str,
        guard: Guard,
        handler: impl Handler<T, Plane>,
    ) -> Self {
        self.router = self.router.route(path, on(filter, handler));
        self.rows.push(Row { method, path: path.to_owned(), guard });
        self
    }

    /// Adds the routes of another file.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.rows.extend(other.rows);
        self
    }

    /// Adds a route without a row, to see it refused.
    #[cfg(test)]
    pub(super) fn add_beside_the_table(&mut self, path: &str, method: axum::routing::MethodRouter<Plane>) {
        self.router = std::mem::take(&mut self.router).route(path, method);
    }

    /// The table.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The router, each route behind its guard.
    pub fn guarded(self, plane: &Plane) -> Router<Plane> {
        let mut table: HashMap<String, Vec<(Method, Guard)>> = HashMap::new();
        for row in self.rows {
            table.entry(row.path).or_default().push((row.method, row.guard));
        }
        let gate = Gate { plane: plane.clone(), table: Arc::new(table) };
        self.router.route_layer(middleware::from_fn_with_state(gate, pass))
    }
}

#[derive(Clone)]
struct Gate {
    plane: Plane,
    table: Arc<HashMap<String, Vec<(Method, Guard)>>>,
}

async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let Some(rows) = matched.as_ref().and_then(|path| gate.table.get(path)) else {
        return unguarded().into_response();
    };
    let method = request.method();
    let row = |wanted: &Method| rows.iter().find(|(method, _)| method == wanted).map(|(_, guard)| *guard);
    let guard = row(method).or_else(|| if method == Method::HEAD { row(&Method::GET) } else { None });
    let Some(guard) = guard else { return not_allowed(request, rows).await };
    let (mut parts, body) = request.into_parts();
    let admitted = admit(&gate.plane, guard, &mut parts).await;
    let act = parts.extensions.get::<Caller>().map(|caller| Act {
        workspace: caller.workspace_id,
        actor: caller.principal_id,
        action: format!("{} {}", parts.method, matched.unwrap_or_default()),
        resource: parts.uri.path().to_owned(),
        request: caller.request_id,
    });
    let changes = !parts.method.is_safe();
    let response = match (admitted, &act) {
        (Err(problem), _) => Refusal(problem).into_response(),
        (Ok(()), Some(act)) if changes => {
            audit::ACT.scope(act.clone(), next.run(Request::from_parts(parts, body))).await
        }
        (Ok(()), _) => next.run(Request::from_parts(parts, body)).await,
    };
    match act {
        Some(act) if response.status() == StatusCode::FORBIDDEN => {
            note_denial(&gate.plane, act, response).await
        }
        _ => response,
    }
}

/// A denial is on record before the caller hears of it.
async fn note_denial(plane: &Plane, act: Act, response: Response) -> Response {
    let now = plane.clock.now();
    let noted =
        plane.store.write(move |tx| audit::append(tx, act.workspace, now, act.entry(Outcome::Denied, None)));
    match noted.await {
        Ok(()) => response,
        Err(error) => Refusal(error.into()).into_response(),
    }
}

/// A route that was added beside the table. It is refused whoever asks.
fn unguarded() -> Refusal {
    Refusal(reply::internal(&"a route has no row in the table of guards"))
}

async fn not_allowed(request: Request, rows: &[(Method, Guard)]) -> Response {
    let mut response = reply::unknown_method(request).await.into_response();
    let mut allowed: Vec<&str> = rows.iter().map(|(method, _)| method.as_str()).collect();
    if allowed.contains(&"GET") && !allowed.contains(&"HEAD") {
        allowed.push("HEAD");
    }
    if let Ok(value) = HeaderValue::from_str(&allowed.join(",")) {
        response.headers_mut().insert(header::ALLOW, value);
    }
    response
}

async fn admit(plane: &Plane, guard: Guard, parts: &mut Parts) -> Result<(), Problem> {
    match guard {
        Guard::Open | Guard::Capability => Ok(()),
        Guard::Runner => {
            let runner = auth::runner(plane, parts).await?;
            parts.extensions.insert(runner);
            Ok(())
        }
        Guard::AnyKey => {
            let caller = auth::caller(plane, parts).await?;
            parts.extensions.insert(caller);
            Ok(())
        }
        Guard::Key(permission, on) => {
            let caller = auth::caller(plane, parts).await?;
            let params = RawPathParams::from_request_parts(parts, plane).await;
            // Who was refused is on record too.
            parts.extensions.insert(caller.clone());
            covers(&caller, permission, on, params.ok().as_ref())
        }
    }
}

fn covers(
    caller: &Caller,
    permission: Permission,
    on: On,
    params: Option<&RawPathParams>,
) -> Result<(), Problem> {
    match on {
        On::All(kind) => caller.grants.check(permission, kind, ""),
        On::Some(kind) if caller.grants.covers_some(permission, kind) => Ok(()),
        On::Some(kind) => Err(grant::denied(permission, kind, "")),
        On::Named(kind, param) => {
            let named = params.and_then(|params| params.iter().find(|(name, _)| *name == param));
            // What is not valid text names nothing, and the handler says so.
            caller.grants.check(permission, kind, named.map_or("\u{fffd}", |(_, id)| id))
        }
    }
}

/// The refusal of a handler that asks for a caller whom its guard does not know.
pub(super) fn no_caller() -> Refusal {
    Refusal(Problem::new(Code::Internal, "The server failed to answer. Report the request id."))
}
