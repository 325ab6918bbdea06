//! Settlements: the five things a consumer does with a message that it holds, one or many at a time; and leases that an
//! operator ends.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use dwell_model::QueueName;
use dwell_store::{LeaseRef, Settle};
use dwell_wire::{Settled, Verb};

use super::audit_log::Managed;
use super::batch::{self, BatchOperation};
use super::call::HttpCall;
use super::{App, HttpRefusal, Problem, access, pages, reply};
use crate::json::{self, SettleFieldsIn, object};
use crate::security::Caller;

/// `POST /v1/receipts/{receipt}/ack`, `/retry`, `/release`, `/bury`, `/extend`
pub(crate) async fn settle(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let action = call.param("action").expect("the route has this parameter").to_owned();
    if !["ack", "retry", "release", "bury", "extend"].contains(&action.as_str()) {
        return Err(pages::unknown_route().await);
    }
    let receipt = call.parsed("receipt")?;
    let in_query = !call.query()?.is_empty();
    let fields: SettleFieldsIn = call.fields(&app).await?;
    let unknown = if in_query { HttpRefusal::UnknownParameter } else { HttpRefusal::UnknownField };
    let settle = Settle { receipt, action: fields.action(&action, unknown)? };
    let settled = app.store.settle(vec![settle]).await.pop().expect("a store answers each item")?;
    Ok(reply::json(StatusCode::OK, &Settled::from(settled)))
}

/// `POST /v1/settle`
pub(crate) async fn settle_many(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let operation = SettleMany { app: Arc::clone(&app), caller: call.caller() };
    batch::run(app, call, operation).await
}

struct SettleMany {
    app: Arc<App>,
    caller: Caller,
}

impl BatchOperation for SettleMany {
    type Item = Settle;
    type Answer = Settled;

    fn read(&self, text: &str) -> Result<Settle, Problem> {
        let settle = json::settle(object(text)?)?;
        access::require(&self.caller, &[Verb::Take], &settle.receipt.queue)?;
        Ok(settle)
    }

    async fn run(&self, items: Vec<Settle>) -> Vec<Result<Settled, Problem>> {
        let answers = self.app.store.settle(items).await;
        answers.into_iter().map(|answer| Ok(Settled::from(answer?))).collect()
    }
}

/// `POST /v1/queues/{queue}/leases:expire`
pub(crate) async fn expire_leases(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let operation = ExpireLeases { app: Arc::clone(&app), caller: call.caller(), queue: call.queue()? };
    batch::run(app, call, operation).await
}

struct ExpireLeases {
    app: Arc<App>,
    caller: Caller,
    queue: QueueName,
}

impl BatchOperation for ExpireLeases {
    type Item = LeaseRef;
    type Answer = Settled;

    fn read(&self, text: &str) -> Result<LeaseRef, Problem> {
        json::lease(&object(text)?)
    }

    async fn run(&self, items: Vec<LeaseRef>) -> Vec<Result<Settled, Problem>> {
        let managed = Managed::new(self.caller.clone(), "expire_leases", &self.queue);
        let answers = managed.each_done(self.app.store.expire_lease(self.queue.clone(), items)).await;
        answers.into_iter().map(|answer| Ok(Settled::from(answer?))).collect()
    }
}
