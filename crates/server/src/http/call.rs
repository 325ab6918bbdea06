//! A request as handlers see it: path, query, headers, body.

use std::str::FromStr;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::{HeaderMap, HeaderName, header, request};
use bytes::Bytes;
use dwell_model::{Invalid, QueueName};
use dwell_store::Target;
use dwell_wire::Verb;
use serde::de::DeserializeOwned;

use super::connection::Unwritten;
use super::{App, HttpRefusal, Problem, access, body, token_gone};
use crate::json::{FromQuery, object};
use crate::query::Query;
use crate::security::Caller;

/// The declared media type of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    /// `application/json`
    Json,
    /// `application/x-ndjson`
    Ndjson,
    /// None is declared.
    Unsaid,
    /// Any other.
    Other,
}

/// A request.
#[derive(Debug)]
pub(crate) struct HttpCall {
    parts: request::Parts,
    params: Vec<(Box<str>, Box<str>)>,
    body: Body,
}

impl FromRequest<Arc<App>> for HttpCall {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<HttpCall, Problem> {
        let (mut parts, body) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut parts, app).await.map_err(|_| {
            Problem::new(HttpRefusal::MalformedRequest, "the path is not UTF-8 once percent-decoded")
        })?;
        let params = params.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Ok(HttpCall { parts, params, body })
    }
}

impl HttpCall {
    /// The path's segment of this name, percent-decoded.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(given, _)| &**given == name).map(|(_, value)| &**value)
    }

    /// The path's segment of this name, parsed by its type.
    pub(crate) fn parsed<T: FromStr<Err = Invalid>>(&self, name: &str) -> Result<T, Problem> {
        let text = self.param(name).expect("the route has this parameter");
        Ok(text.parse()?)
    }

    /// The queue in the path.
    pub(crate) fn queue(&self) -> Result<QueueName, Problem> {
        self.parsed("queue")
    }

    /// The message in the path, by id or by key.
    pub(crate) fn target(&self) -> Result<Target, Problem> {
        match self.param("key") {
            Some(key) => Ok(Target::Key(key.parse()?)),
            None => Ok(Target::Id(self.parsed("id")?)),
        }
    }

    /// The query.
    pub(crate) fn query(&self) -> Result<Query, Problem> {
        Query::parse(self.parts.uri.query())
    }

    /// Refuses any parameter, for routes that have none.
    pub(crate) fn no_query(&self) -> Result<(), Problem> {
        self.query()?.finish()
    }

    /// The request's headers.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// Whether the client asks for one raw body instead of JSON.
    pub(crate) fn wants_raw(&self) -> bool {
        self.names(&header::ACCEPT, "application/octet-stream")
    }

    /// Whether a browser asks for a page.
    pub(crate) fn wants_html(&self) -> bool {
        self.names(&header::ACCEPT, "text/html")
    }

    /// Whether the answer may be compressed.
    pub(crate) fn takes_gzip(&self) -> bool {
        self.names(&header::ACCEPT_ENCODING, "gzip")
    }

    /// Whether a header that lists accepted values names `wanted`, and does not refuse it by `q=0`.
    fn names(&self, list: &HeaderName, wanted: &str) -> bool {
        let values = self.parts.headers.get_all(list).iter().filter_map(|value| value.to_str().ok());
        let mut items = values.flat_map(|value| value.split(','));
        items.any(|item| essence(item) == wanted && !is_refused(item))
    }

    /// The declared media type.
    pub(crate) fn media(&self) -> Media {
        let Some(value) = self.parts.headers.get(header::CONTENT_TYPE) else { return Media::Unsaid };
        match essence(value.to_str().unwrap_or_default()).as_str() {
            "application/json" => Media::Json,
            "application/x-ndjson" => Media::Ndjson,
            _ => Media::Other,
        }
    }

    /// The caller.
    pub(crate) fn caller(&self) -> Caller {
        self.parts.extensions.get().cloned().expect("the connection adds it to each request")
    }

    /// Refuses a caller who may do none of `verbs` in `queue`, for routes that [check each
    /// queue](access::Asks::InEach).
    pub(crate) fn require(&self, verbs: &[Verb], queue: &QueueName) -> Result<(), Problem> {
        access::require(&self.caller(), verbs, queue)
    }

    /// What this connection has handed over and not yet written.
    pub(crate) fn unwritten(&self) -> Arc<Unwritten> {
        let unwritten = self.parts.extensions.get::<Arc<Unwritten>>();
        Arc::clone(unwritten.expect("the connection adds it to each request"))
    }

    /// The body as a stream.
    pub(crate) fn into_body(self) -> Body {
        self.body
    }

    /// The whole body, which the connection holds until its request is answered. A body that declares too large a
    /// length is refused before it is read; so is one whose caller's token is revoked before all of it has arrived.
    async fn whole(
        self,
        app: &App,
        limit: usize,
        too_large: impl Fn(usize) -> Problem,
    ) -> Result<Bytes, Problem> {
        let announced = self.body.size_hint().exact().map(|len| usize::try_from(len).unwrap_or(usize::MAX));
        let room = app.memory.growing(announced.unwrap_or(limit).min(limit));
        let unwritten = self.unwritten();
        let caller = self.caller();
        let (bytes, held) = tokio::select! {
            biased;
            read = body::read(self.body, limit, body::Timing::new(app), room, too_large) => read?,
            () = app.live.changed(&caller) => return Err(token_gone()),
        };
        // Also where the last of it arrived at the same time.
        app.check_token(&caller)?;
        unwritten.hold(held);
        Ok(bytes)
    }

    /// The whole body as a message's: at most as long as the store allows.
    pub(crate) async fn message_body(self, app: &App) -> Result<Bytes, Problem> {
        let limit = app.store.limits().body_len;
        self.whole(app, limit, |len| Invalid::BodyTooLarge { len, limit }.into()).await
    }

    /// The whole body as text that is held in memory.
    pub(crate) async fn text(self, app: &App) -> Result<String, Problem> {
        let limit = app.json_bytes();
        let bytes = self.whole(app, limit, |_| body::request_too_large(limit)).await?;
        String::from_utf8(bytes.into()).map_err(|error| {
            Problem::new(HttpRefusal::MalformedJson, format!("the body is not UTF-8: {error}"))
        })
    }

    /// The request's fields, from its query or from a JSON object.
    pub(crate) async fn fields<T: FromQuery + DeserializeOwned>(self, app: &App) -> Result<T, Problem> {
        let mut query = self.query()?;
        let media = self.media();
        let text = self.text(app).await?;
        if text.is_empty() {
            let fields = T::from_query(&mut query)?;
            query.finish()?;
            return Ok(fields);
        }
        expect_json(media)?;
        if !query.is_empty() {
            return Err(Problem::new(
                HttpRefusal::ConflictingFields,
                "give parameters in the query or as JSON, not both",
            ));
        }
        object(&text)
    }

    /// A JSON value.
    pub(crate) async fn json<T: DeserializeOwned>(self, app: &App) -> Result<T, Problem> {
        self.no_query()?;
        expect_json(self.media())?;
        object(&self.text(app).await?)
    }
}

fn expect_json(media: Media) -> Result<(), Problem> {
    match media {
        Media::Json => Ok(()),
        Media::Ndjson | Media::Unsaid | Media::Other => Err(Problem::new(
            HttpRefusal::UnsupportedMediaType,
            "send JSON, with `Content-Type: application/json`",
        )),
    }
}

/// Whether an item of a list has a weight of 0 (RFC 9110, section 12.4.2).
fn is_refused(item: &str) -> bool {
    let mut weights = item.split(';').skip(1).filter_map(|parameter| parameter.trim().strip_prefix("q="));
    weights.any(|weight| weight.trim().parse::<f32>() == Ok(0.0))
}

/// A media type without its parameters, in lower case.
fn essence(media: &str) -> String {
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}
