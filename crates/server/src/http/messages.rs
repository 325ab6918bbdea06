//! Messages outside a delivery: get, list, cancel, reschedule.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode, header};
use dwell_model::{
    AttemptLimit, Cursor, Message, MessageId, QueueName, Receipt, StateKind, Timestamp, format_duration_ms,
};
use dwell_store::{Cancelled, Error, Page, Rescheduled, Target, When};
use dwell_wire::{MAY_LOOK, Moved, lease_until};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::batch::{self, BatchOperation};
use super::call::HttpCall;
use super::reply::{self, holding, with_type};
use super::{App, HttpRefusal, Problem};
use crate::json::{self, FoundOut, NoFieldsIn, object, unread};
use crate::query::Query;

const DEFAULT_PAGE: usize = 100;
const LONGEST_PAGE: usize = 1_000;
const LONGEST_PREVIEW: usize = 256;

/// `GET /v1/queues/{queue}/messages/{id}`, `GET /v1/queues/{queue}/keys/{key}`
pub(crate) async fn get(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let (queue, target) = (call.queue()?, call.target()?);
    let mut query = call.query()?;
    // An id always names dead messages too.
    let dead = matches!(target, Target::Key(_)) && query.flag("dead")?.unwrap_or(false);
    let with_body = body_wanted(query)?;
    found(&app, call.wants_raw(), queue, target, dead, with_body).await
}

/// `POST /v1/queues/{queue}/messages:get`: a read, for all that it is a POST.
pub(crate) async fn get_many(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    app.check_room()?;
    let mut query = call.query()?;
    let dead = query.flag("dead")?.unwrap_or(false);
    query.finish()?;
    let operation = GetMany { app: Arc::clone(&app), queue: call.queue()?, dead };
    batch::run_with_query(app, call, operation).await
}

struct GetMany {
    app: Arc<App>,
    queue: QueueName,
    /// Whether keys name dead messages where no live one has them.
    dead: bool,
}

impl BatchOperation for GetMany {
    type Item = Target;
    type Answer = FoundOut;

    /// A few bodies at a time are held in memory, each of which may have the maximum length: the bytes that one answer
    /// may have, or one body.
    fn step(&self) -> usize {
        (self.app.memory.answer_bytes() / self.app.store.limits().body_len.max(1)).clamp(1, 16)
    }

    fn read(&self, text: &str) -> Result<Target, Problem> {
        json::target(object(text)?)
    }

    async fn run(&self, items: Vec<Target>) -> Vec<Result<FoundOut, Problem>> {
        let len = items.len();
        // The room set aside here is returned with the function: the answers are serialized without an await, and count
        // then.
        match self
            .app
            .bring(self.app.store.get(self.queue.clone(), items, self.dead), |found| {
                bytes_of(found.iter().flatten())
            })
            .await
        {
            Ok((found, _held)) => found.into_iter().map(|found| Ok(FoundOut(found?))).collect(),
            Err(_) => (0..len).map(|_| Err(super::overloaded())).collect(),
        }
    }
}

/// `GET /v1/receipts/{receipt}`: also once the receipt's lease is over.
pub(crate) async fn get_receipt(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let Receipt { queue, id, .. } = call.parsed("receipt")?;
    let with_body = body_wanted(call.query()?)?;
    found(&app, call.wants_raw(), queue, Target::Id(id), false, with_body).await
}

/// `GET /v1/numbers/{number}`
pub(crate) async fn get_number(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let number = call.parsed("number")?;
    let with_body = body_wanted(call.query()?)?;
    // A caller without access to the queue must not learn that the message exists.
    let located = app.store.locate(vec![number]).await.pop().transpose();
    // Nor what an error says of queues: the message's queue is unknown.
    let located = located.map_err(|error| {
        tracing::warn!(code = error.code(), error = error.to_string(), "no look-up by number");
        Problem::from(error)
            .with_detail("the store cannot tell where the message is; the server's log says why")
    })?;
    let located = located.flatten();
    match located.filter(|(queue, _)| call.require(MAY_LOOK, queue).is_ok()) {
        Some((queue, id)) => found(&app, call.wants_raw(), queue, Target::Id(id), false, with_body).await,
        None => Err(Problem::about("message_not_found", format!("no message has the number {number}"))),
    }
}

fn body_wanted(mut query: Query) -> Result<bool, Problem> {
    let wanted = query.flag("body")?.unwrap_or(true);
    query.finish()?;
    Ok(wanted)
}

async fn found(
    app: &App,
    as_raw: bool,
    queue: QueueName,
    target: Target,
    dead: bool,
    with_body: bool,
) -> Result<Response<Body>, Problem> {
    app.check_room()?;
    let get = app.store.get(queue, vec![target], dead);
    let (mut found, held) = app.bring(get, |found| bytes_of(found.iter().flatten())).await?;
    let message = found.pop().expect("a store answers each item")?;
    if !as_raw {
        return Ok(holding(reply::json(StatusCode::OK, &dwell_wire::Message::of(&message, with_body)), held));
    }
    let mut response = raw(&message);
    if with_body {
        *response.body_mut() = Body::from(message.body);
    }
    Ok(holding(response, held))
}

/// The memory that their bodies hold, and other parts that may be long.
pub(super) fn bytes_of<'a>(messages: impl IntoIterator<Item = &'a Message>) -> usize {
    let error = |message: &Message| message.standing.last_error.as_ref().map_or(0, |error| error.len());
    messages.into_iter().map(|message| message.body.len() + message.headers.size() + error(message)).sum()
}

/// A message with everything but its body in headers; the caller adds the body.
pub(crate) fn raw(message: &Message) -> Response<Body> {
    let octets = HeaderValue::from_static("application/octet-stream");
    let content_type = message.headers.get(header::CONTENT_TYPE.as_str());
    // A content type that no HTTP header could hold is kept with the message, and left out here.
    let content_type = content_type.and_then(|text| HeaderValue::from_bytes(text.as_bytes()).ok());
    let mut response = with_type(StatusCode::OK, content_type.unwrap_or(octets), Body::empty());
    let headers = response.headers_mut();
    // The sender chooses the type, and the origin is the web page's: a browser has to download it, and must not run it.
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    let mut set = |name: &str, text: &str| {
        let name = HeaderName::from_bytes(format!("dwell-{name}").as_bytes());
        // Names and values were checked at the put: tokens, and text without control characters.
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(text.as_bytes())) {
            // Far below the map's capacity: all headers together have at most 16 KiB of text.
            let _ = headers.try_append(name, value);
        }
    };
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let standing = &message.standing;
    set("id", &message.id.to_string());
    set("number", &message.number.to_string());
    set("queue", message.queue.as_str());
    set("state", standing.state.kind().as_str());
    set("due", &standing.due.to_string());
    set("created", &message.created.to_string());
    set("priority", &standing.priority.to_string());
    set("attempt", &standing.attempt().to_string());
    if let Some(key) = &message.key {
        set("key", &encoded(key.as_str()));
    }
    if let Some(expires) = standing.expires {
        set("expires", &expires.to_string());
    }
    match message.max_attempts {
        None => {}
        Some(AttemptLimit::Unlimited) => set("max-attempts", "unlimited"),
        Some(AttemptLimit::At(limit)) => set("max-attempts", &limit.to_string()),
    }
    if let Some(lease_ms) = message.lease_ms {
        set("lease", &format_duration_ms(lease_ms));
    }
    if let Some(until) = lease_until(message) {
        set("lease-until", &until.to_string());
    }
    if let Some(holder) = &standing.holder {
        set("holder", &encoded(holder.as_str()));
    }
    if let Some(error) = &standing.last_error {
        set("last-error", &encoded(error));
    }
    for (name, value) in message.headers.iter().filter(|(name, _)| *name != "content-type") {
        set(&format!("header-{name}"), value);
    }
    response
}

/// How a list shows bodies.
#[derive(Clone, Copy, Debug)]
enum BodyView {
    Whole,
    /// The first characters.
    Preview(usize),
    Nothing,
}

impl BodyView {
    /// Parses the rest of the query.
    fn read(mut query: Query) -> Result<BodyView, Problem> {
        let body = query.flag("body")?;
        let preview: Option<usize> = query.number("preview")?;
        query.finish()?;
        match (body, preview) {
            (Some(true), Some(_)) => Err(Problem::new(
                HttpRefusal::ConflictingFields,
                "`preview` is shown in place of the body; leave out `body` or `preview`",
            )),
            (_, Some(characters)) if characters > LONGEST_PREVIEW => Err(Problem::new(
                HttpRefusal::InvalidParameter,
                format!("parameter 'preview': 0 to {LONGEST_PREVIEW} is expected, not {characters}"),
            )
            .with_limit(LONGEST_PREVIEW as u64)),
            (_, Some(characters)) => Ok(BodyView::Preview(characters)),
            (Some(false), None) => Ok(BodyView::Nothing),
            (None | Some(true), None) => Ok(BodyView::Whole),
        }
    }

    fn of(self, message: &Message) -> dwell_wire::Message<'_> {
        match self {
            BodyView::Whole => dwell_wire::Message::of(message, true),
            BodyView::Preview(characters) => dwell_wire::Message::previewed(message, characters),
            BodyView::Nothing => dwell_wire::Message::of(message, false),
        }
    }
}

/// Where a list begins: after what is due before `from`, or at the cursor.
fn first(from: Option<Timestamp>, cursor: Option<Cursor>) -> Result<Option<Cursor>, Problem> {
    match (from, cursor) {
        (Some(_), Some(_)) => Err(Problem::new(
            HttpRefusal::ConflictingFields,
            "a cursor goes on from where `from` began: give one of them",
        )),
        (None, cursor) => Ok(cursor),
        // Nothing is due before the first instant.
        (Some(from), None) => Ok(Timestamp::from_ms(from.as_ms() - 1).ok().map(|due| {
            let (shard, incarnation) = (MessageId::MAX_SHARD, MessageId::MAX_INCARNATION);
            let id = MessageId::new(Timestamp::MAX, shard, incarnation, MessageId::MAX_COUNTER);
            Cursor { due, id }
        })),
    }
}

/// `GET /v1/queues/{queue}/messages`
pub(crate) async fn list(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let queue = call.queue()?;
    let mut query = call.query()?;
    let states = StateKind::ALL.map(|state| (state.as_str(), state));
    let state = query.word("state", &states)?.unwrap_or(StateKind::Scheduled);
    let cursor = first(query.parsed("from")?, query.parsed("cursor")?)?;
    let max = query.bounded("max", DEFAULT_PAGE, 1, LONGEST_PAGE)?;
    let shown = BodyView::read(query)?;
    app.check_room()?;
    let list = app.store.list(queue, state, cursor, max);
    let bytes = |page: &Result<Page, Error>| page.as_ref().map_or(0, |page| bytes_of(page.messages.iter()));
    let (page, held) = app.bring(list, bytes).await?;
    let page = page?;
    let messages = page.messages.iter().map(|message| shown.of(message)).collect();
    let page = dwell_wire::Page { messages, unread: unread(page.unread), next: page.next };
    Ok(holding(reply::json(StatusCode::OK, &page), held))
}

/// `DELETE /v1/queues/{queue}/messages/{id}`, `DELETE /v1/queues/{queue}/keys/{key}`
pub(crate) async fn cancel(State(app): State<Arc<App>>, call: HttpCall) -> Result<Response<Body>, Problem> {
    let (queue, target) = (call.queue()?, call.target()?);
    call.fields::<NoFieldsIn>(&app).await?;
    let found = app.store.cancel(queue.clone(), vec![target]).await.pop();
    Ok(reply::json(StatusCode::OK, &cancelled(&queue, found.expect("a store answers each item")?)?))
}

/// `POST /v1/queues/{queue}/messages:cancel`
pub(crate) async fn cancel_many(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let operation = CancelMany { app: Arc::clone(&app), queue: call.queue()? };
    batch::run(app, call, operation).await
}

struct CancelMany {
    app: Arc<App>,
    queue: QueueName,
}

impl BatchOperation for CancelMany {
    type Item = Target;
    type Answer = dwell_wire::Cancelled;

    fn read(&self, text: &str) -> Result<Target, Problem> {
        json::target(object(text)?)
    }

    async fn run(&self, items: Vec<Target>) -> Vec<Result<dwell_wire::Cancelled, Problem>> {
        let found = self.app.store.cancel(self.queue.clone(), items).await;
        found.into_iter().map(|found| cancelled(&self.queue, found?)).collect()
    }
}

fn cancelled(queue: &QueueName, found: Cancelled) -> Result<dwell_wire::Cancelled, Problem> {
    match found {
        Cancelled::Cancelled(id) => Ok(dwell_wire::Cancelled::new(id)),
        Cancelled::Leased(id) => Err(Problem::found(Error::Leased { id })),
        Cancelled::Dead(id) => Err(Problem::found(Error::Dead { id })),
        Cancelled::NotFound => Err(Problem::found(Error::MessageNotFound { queue: queue.clone() })),
    }
}

/// `POST /v1/queues/{queue}/messages/{id}/reschedule`, `POST /v1/queues/{queue}/keys/{key}/reschedule`
pub(crate) async fn reschedule(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let (queue, target) = (call.queue()?, call.target()?);
    let when = json::required_when(call.fields(&app).await?)?;
    let found = app.store.reschedule(queue.clone(), vec![(target, when)]).await.pop();
    Ok(reply::json(StatusCode::OK, &moved(&queue, found.expect("a store answers each item")?)?))
}

/// `POST /v1/queues/{queue}/messages:reschedule`
pub(crate) async fn reschedule_many(
    State(app): State<Arc<App>>,
    call: HttpCall,
) -> Result<Response<Body>, Problem> {
    let operation = RescheduleMany { app: Arc::clone(&app), queue: call.queue()? };
    batch::run(app, call, operation).await
}

struct RescheduleMany {
    app: Arc<App>,
    queue: QueueName,
}

impl BatchOperation for RescheduleMany {
    type Item = (Target, When);
    type Answer = Moved;

    fn read(&self, text: &str) -> Result<(Target, When), Problem> {
        json::reschedule(object(text)?)
    }

    async fn run(&self, items: Vec<(Target, When)>) -> Vec<Result<Moved, Problem>> {
        let found = self.app.store.reschedule(self.queue.clone(), items).await;
        found.into_iter().map(|found| moved(&self.queue, found?)).collect()
    }
}

fn moved(queue: &QueueName, found: Rescheduled) -> Result<Moved, Problem> {
    match found {
        Rescheduled::Moved(id, due) => Ok(Moved::new(id, due)),
        Rescheduled::Leased(id) => Err(Problem::found(Error::Leased { id })),
        Rescheduled::Dead(id) => Err(Problem::found(Error::Dead { id })),
        Rescheduled::NotFound => Err(Problem::found(Error::MessageNotFound { queue: queue.clone() })),
    }
}
