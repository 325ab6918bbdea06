//! Messages: the JSON of get, list and take.

use std::borrow::Cow;

use dwell_model::{
    AttemptLimit, Cursor, Death, DeathReason, Headers, Holder, Key, Lease, LeaseToken, MessageId, Number,
    QueueName, Receipt, Standing, State, StateKind, Timestamp,
};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::{self, Base64};
use crate::{RefusedOne, Unreadable};

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Message<'a> {
    /// Its identity.
    pub id: MessageId,
    /// Its number.
    pub number: u64,
    /// The queue it is in.
    pub queue: Cow<'a, QueueName>,
    /// Its state.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "String", extend("enum" = ["scheduled", "ready", "leased", "dead"]))
    )]
    pub state: StateKind,
    // Of the two fields for the body, at most one is present; neither if the body was left out.
    #[serde(rename = "body", skip_serializing_if = "Option::is_none")]
    body_text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    body_base64: Option<Base64<'a>>,
    /// The beginning of the body, if requested and UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Cow<'a, str>>,
    /// The beginning of the body, if requested and not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub preview_base64: Option<Base64<'a>>,
    /// The length of the body in bytes, also if the body was left out.
    pub size: usize,
    /// The instant before which it is not handed out.
    pub due: Timestamp,
    /// When it was put.
    pub created: Timestamp,
    /// The instant past which it is dead unless it is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The caller's own key for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, Key>>,
    /// Text headers, stored with the body.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<std::collections::BTreeMap<String, String>>"))]
    pub headers: Headers,
    /// The priority among due messages, smaller first.
    pub priority: u32,
    /// The attempt under way, or the number of attempts spent.
    pub attempt: u32,
    /// Its own limit of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<AttemptLimit>,
    /// Its own lease.
    #[serde(
        rename = "lease",
        default,
        with = "text::option_duration",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::Duration>"))]
    pub lease_ms: Option<u64>,
    /// When its lease ends, by the store's wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<Timestamp>,
    /// When its lease was granted or last extended, by the store's wall clock at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_granted: Option<Timestamp>,
    /// Who holds it, if the take named a holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Cow<'a, Holder>>,
    /// Why it is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_reason: Option<DeathReason>,
    /// Since when it is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_at: Option<Timestamp>,
    /// The error of its last failed attempt, or the reason it was buried with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Cow<'a, str>>,
    /// Counters of what happened to it.
    pub counts: Counts,
}

impl<'a> Message<'a> {
    /// The message as a server shows it, with or without its body.
    pub fn of(message: &'a dwell_model::Message, with_body: bool) -> Message<'a> {
        let standing = &message.standing;
        let (body_text, body_base64) = match std::str::from_utf8(&message.body) {
            _ if !with_body => (None, None),
            Ok(text) => (Some(text.into()), None),
            Err(_) => (None, Some(Base64((&*message.body).into()))),
        };
        let (lease, death) = match standing.state {
            State::Leased(lease) => (Some(lease), None),
            State::Dead(death) => (None, Some(death)),
            State::Scheduled | State::Ready => (None, None),
        };
        let dwell_model::Counts { takes, lapses, releases, buries, revives } = standing.counts;
        Message {
            id: message.id,
            number: message.number.get(),
            queue: Cow::Borrowed(&message.queue),
            state: standing.state.kind(),
            body_text,
            body_base64,
            preview: None,
            preview_base64: None,
            size: message.body.len(),
            due: standing.due,
            created: message.created,
            expires: standing.expires,
            key: message.key.as_ref().map(Cow::Borrowed),
            headers: message.headers.clone(),
            priority: standing.priority,
            attempt: standing.attempt(),
            max_attempts: message.max_attempts,
            lease_ms: message.lease_ms,
            lease_until: lease.map(|lease| lease.deadline),
            lease_granted: lease.map(|lease| lease.granted_at()),
            holder: standing.holder.as_ref().map(Cow::Borrowed),
            dead_reason: death.map(|death| death.reason),
            dead_at: death.map(|death| death.at),
            last_error: standing.last_error.as_deref().map(Cow::Borrowed),
            counts: Counts { takes, lapses, releases, buries, revives },
        }
    }

    /// The message as a server lists it, with the first `characters` of its body, or as many bytes if they are not UTF-8.
    pub fn previewed(message: &'a dwell_model::Message, characters: usize) -> Message<'a> {
        let body = &*message.body;
        // A character has at most four bytes: if the cut is inside a character, there are enough before it.
        let head = &body[..body.len().min(characters.saturating_mul(4))];
        let valid = head.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let cut = valid.char_indices().nth(characters).map_or(valid.len(), |(at, _)| at);
        let is_text = valid.len() == body.len() || valid.chars().nth(characters.saturating_sub(1)).is_some();
        let mut shown = Message::of(message, false);
        if characters == 0 || is_text {
            shown.preview = Some(valid[..cut].into());
        } else {
            shown.preview_base64 = Some(Base64(body[..body.len().min(characters)].into()));
        }
        shown
    }

    /// Its body as text, if it is present and UTF-8.
    pub fn text(&self) -> Option<&str> {
        self.body_text.as_deref()
    }

    /// The message of the store. An answer shows from when to when a lease lasts and who holds it. It does not show the
    /// token, which only the holder has: it is 0, and so is the length if the server does not say when the lease was
    /// granted. Nor does it show that the message has lost its key to another one.
    ///
    /// # Errors
    /// If its state requires a field that is missing.
    pub fn into_message(self) -> Result<dwell_model::Message, Unreadable> {
        let granted = self.lease_granted;
        let hidden = |deadline: Timestamp| Lease {
            token: LeaseToken(0),
            lease_ms: granted.map_or(0, |granted| deadline.ms_since(granted)),
            deadline_mono_ms: 0,
            deadline,
            session: false,
        };
        let lease = self.lease_until.map(hidden);
        self.with_lease(lease)
    }

    fn with_lease(self, lease: Option<Lease>) -> Result<dwell_model::Message, Unreadable> {
        let state = match self.state {
            StateKind::Scheduled => State::Scheduled,
            StateKind::Ready => State::Ready,
            StateKind::Leased => State::Leased(lease.ok_or(Unreadable("a leased message has no end"))?),
            StateKind::Dead => {
                let (reason, at) =
                    self.dead_reason.zip(self.dead_at).ok_or(Unreadable("a death has no reason"))?;
                State::Dead(Death { reason, at })
            }
        };
        // The attempt under way is not spent yet.
        let under_way = u32::from(self.state == StateKind::Leased);
        let Counts { takes, lapses, releases, buries, revives } = self.counts;
        let body = match (self.body_text, self.body_base64) {
            (Some(text), _) => text.into_owned().into_bytes(),
            (None, Some(Base64(bytes))) => bytes.into_owned(),
            (None, None) => Vec::new(),
        };
        Ok(dwell_model::Message {
            id: self.id,
            number: number(self.number)?,
            queue: self.queue.into_owned(),
            body: body.into(),
            key: self.key.map(Cow::into_owned),
            headers: self.headers,
            created: self.created,
            lease_ms: self.lease_ms,
            max_attempts: self.max_attempts,
            standing: Standing {
                state,
                due: self.due,
                priority: self.priority,
                attempts: self.attempt.saturating_sub(under_way),
                expires: self.expires,
                keyless: false,
                counts: dwell_model::Counts { takes, lapses, releases, buries, revives },
                last_error: self.last_error.map(|error| error.as_ref().into()),
                holder: self.holder.map(Cow::into_owned),
            },
        })
    }
}

/// The number of a message, if it is in range.
pub(crate) fn number(number: u64) -> Result<Number, Unreadable> {
    Number::new(number).map_err(|_| Unreadable("a number is out of range"))
}

/// When the lease of a leased message ends, by the store's wall clock.
pub fn lease_until(message: &dwell_model::Message) -> Option<Timestamp> {
    match message.standing.state {
        State::Leased(lease) => Some(lease.deadline),
        _ => None,
    }
}

/// How often each event happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "MessageCounts"))]
pub struct Counts {
    /// Times it was handed out.
    pub takes: u32,
    /// Times its lease ran out.
    pub lapses: u32,
    /// Times it was given back without spending an attempt.
    pub releases: u32,
    /// Times it was buried.
    pub buries: u32,
    /// Times it was revived.
    pub revives: u32,
}

/// The answer to one item of a batch of gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Found<'a> {
    /// The message.
    pub message: Message<'a>,
}

/// One page of a list, in (due, id) order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "MessagePage"))]
pub struct Page<'a> {
    /// The messages.
    pub messages: Vec<Message<'a>>,
    /// Messages of this page that are there and that the store cannot read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<Vec<RefusedOne>>"))]
    pub unread: Vec<RefusedOne>,
    /// Where the next page begins; left out after the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

impl Page<'_> {
    /// The page, as the store behind the server at the address `server` returns it.
    ///
    /// # Errors
    /// As [`Message::into_message`].
    pub fn into_page(self, server: &str) -> Result<dwell_store::Page, Unreadable> {
        let unread = |one: RefusedOne| (one.id, one.error.into_error(server));
        Ok(dwell_store::Page {
            messages: self.messages.into_iter().map(Message::into_message).collect::<Result<_, _>>()?,
            unread: self.unread.into_iter().map(unread).collect(),
            next: self.next,
        })
    }
}

/// A message handed over, under a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Delivery<'a> {
    /// Proof of the lease: what to settle with.
    pub receipt: Cow<'a, Receipt>,
    /// When the lease ends, by the store's wall clock.
    pub lease_until: Timestamp,
    /// When the store handed it out, by its wall clock.
    pub taken_at: Timestamp,
    /// How late that was, in milliseconds.
    pub lateness_ms: u64,
    /// The message. The delivery has the begin and end of the lease, so they are not repeated here.
    #[serde(flatten)]
    pub message: Message<'a>,
}

impl<'a> From<&'a dwell_store::Delivery> for Delivery<'a> {
    fn from(delivery: &'a dwell_store::Delivery) -> Delivery<'a> {
        Delivery {
            receipt: Cow::Borrowed(&delivery.receipt),
            lease_until: delivery.lease_until,
            taken_at: delivery.taken_at,
            lateness_ms: delivery.lateness_ms,
            message: Message {
                lease_until: None,
                lease_granted: None,
                ..Message::of(&delivery.message, true)
            },
        }
    }
}

impl Delivery<'_> {
    /// The delivery, as a store returns it.
    ///
    /// # Errors
    /// As [`Message::into_message`].
    pub fn into_delivery(self) -> Result<dwell_store::Delivery, Unreadable> {
        let receipt = self.receipt.into_owned();
        let lease = Lease {
            token: receipt.token,
            lease_ms: self.lease_until.ms_since(self.taken_at),
            deadline_mono_ms: 0,
            deadline: self.lease_until,
            session: false,
        };
        Ok(dwell_store::Delivery {
            message: self.message.with_lease(Some(lease))?,
            receipt,
            lease_until: self.lease_until,
            taken_at: self.taken_at,
            lateness_ms: self.lateness_ms,
        })
    }
}

/// The answer to a take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Taken<'a> {
    /// The messages.
    pub messages: Vec<Delivery<'a>>,
}
