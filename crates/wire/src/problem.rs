//! A refusal on its way: RFC 9457 with members of its own. A code that is not known here is a later version's.

use std::borrow::Cow;

use dwell_model::MessageId;
use serde::{Deserialize, Serialize};

/// A refusal as the server words it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem<'a> {
    /// Where the code is explained, relative to the server.
    #[serde(rename = "type")]
    pub kind: Cow<'a, str>,
    /// The code in words.
    pub title: Cow<'a, str>,
    /// The HTTP status.
    pub status: u16,
    /// What was refused and what to do.
    pub detail: Cow<'a, str>,
    /// The stable code.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("enum" = crate::CODES.iter().map(|code| code.code).collect::<Vec<_>>()))
    )]
    pub code: Cow<'a, str>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// The message that stands in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    /// The limit that was passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}
