//! A captured message: small in the usual case, since many of them are held in memory until they are written.

use std::collections::HashMap;

use dwell_model::{
    AttemptLimit, Counts, Headers, Key, Message, MessageId, Number, QueueName, Standing, State, Timestamp,
};

use super::cold::CopyAt;

/// A message in the state in which it was captured, to be copied elsewhere.
#[derive(Clone, Debug)]
pub struct SnapshotEntry<B> {
    /// Its identity.
    pub id: MessageId,
    /// Its number.
    pub number: Number,
    /// The instant before which it is not handed out.
    pub due: Timestamp,
    /// When it was put.
    pub created: Timestamp,
    /// Its body.
    pub body: B,
    /// An older copy, correct in everything but the standing.
    pub copy: Option<CopyAt>,
    /// Attributes that only few messages have.
    pub(super) unusual: Option<Box<RareParts>>,
    /// The index of its queue in [`QueueNames`].
    pub queue: u32,
    /// Smaller first, among messages that are already due.
    pub priority: u32,
    /// Whether it is ready rather than scheduled; where `unusual` is set, that takes precedence.
    pub(super) is_ready: bool,
}

const _: () = assert!(size_of::<SnapshotEntry<[u64; 2]>>() <= 96, "as many lie in memory as a flush writes");

/// The extra state of a message that is leased or dead, was taken before, or was put with more than a body.
#[derive(Clone, Debug)]
pub(super) struct RareParts {
    key: Option<Key>,
    headers: Headers,
    lease_ms: Option<u64>,
    max_attempts: Option<AttemptLimit>,
    standing: Standing,
    ready_since: Timestamp,
}

impl<B> SnapshotEntry<B> {
    /// Captures any message; `ready_since` as in [`ColdMessage`](super::ColdMessage).
    pub fn of(
        message: Message<B>,
        ready_since: Timestamp,
        copy: Option<CopyAt>,
        names: &mut QueueNames,
    ) -> SnapshotEntry<B> {
        let Message { id, number, queue, body, key, headers, created, lease_ms, max_attempts, standing } =
            message;
        let Standing { state, due, priority, attempts, expires, keyless, counts, last_error, holder } =
            &standing;
        let is_ready = matches!(state, State::Ready);
        let (due, priority) = (*due, *priority);
        let is_plain = key.is_none()
            && headers.is_empty()
            && lease_ms.is_none()
            && max_attempts.is_none()
            && ready_since == Timestamp::MIN
            && matches!(state, State::Scheduled | State::Ready)
            && *attempts == 0
            && expires.is_none()
            && !keyless
            && *counts == Counts::default()
            && last_error.is_none()
            && holder.is_none();
        let unusual = (!is_plain)
            .then(|| Box::new(RareParts { key, headers, lease_ms, max_attempts, standing, ready_since }));
        let queue = names.place(&queue);
        SnapshotEntry { id, number, due, created, body, copy, unusual, queue, priority, is_ready }
    }

    /// Its state; a leased message reports that it is leased.
    pub fn state(&self) -> State {
        match &self.unusual {
            Some(unusual) => unusual.standing.state,
            None if self.is_ready => State::Ready,
            None => State::Scheduled,
        }
    }

    /// The whole mutable part.
    pub fn standing(&self) -> Standing {
        match &self.unusual {
            Some(unusual) => unusual.standing.clone(),
            None => Standing {
                state: self.state(),
                due: self.due,
                priority: self.priority,
                attempts: 0,
                expires: None,
                keyless: false,
                counts: Counts::default(),
                last_error: None,
                holder: None,
            },
        }
    }

    /// Makes it count as ready from now on, even if it is leased.
    pub fn make_ready(&mut self) {
        self.is_ready = true;
        if let Some(unusual) = &mut self.unusual {
            unusual.standing.state = State::Ready;
            unusual.standing.holder = None;
        }
    }

    /// Returns the message without its body, and when it was last made ready by anything but its instant. The
    /// unusual attributes are moved out.
    pub fn take(&mut self, names: &QueueNames) -> (Message<()>, Timestamp) {
        let unusual = self.unusual.take().map_or_else(
            || RareParts {
                key: None,
                headers: Headers::default(),
                lease_ms: None,
                max_attempts: None,
                standing: self.standing(),
                ready_since: Timestamp::MIN,
            },
            |unusual| *unusual,
        );
        let RareParts { key, headers, lease_ms, max_attempts, standing, ready_since } = unusual;
        let message = Message {
            id: self.id,
            number: self.number,
            queue: names.get(self.queue).clone(),
            body: (),
            key,
            headers,
            created: self.created,
            lease_ms,
            max_attempts,
            standing,
        };
        (message, ready_since)
    }
}

/// The queues of captured messages, each once, indexed from 0 in the order of first use.
#[derive(Clone, Debug, Default)]
pub struct QueueNames {
    names: Vec<QueueName>,
    places: HashMap<QueueName, u32>,
    last: u32,
}

impl QueueNames {
    /// The index of a name, which is added if it is new.
    pub fn place(&mut self, name: &QueueName) -> u32 {
        if self.names.get(self.last as usize) != Some(name) {
            self.last = match self.places.get(name) {
                Some(place) => *place,
                None => {
                    let place = u32::try_from(self.names.len()).expect("queues are counted in 32 bits");
                    self.names.push(name.clone());
                    self.places.insert(name.clone(), place);
                    place
                }
            };
        }
        self.last
    }

    /// The name at an index.
    pub fn get(&self, place: u32) -> &QueueName {
        &self.names[place as usize]
    }

    /// All names, by index.
    pub fn all(&self) -> &[QueueName] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(standing: Standing, key: Option<&str>) -> Message<u64> {
        Message {
            id: MessageId::new(standing.due, 1, 2, 3),
            number: Number::new(7).unwrap(),
            queue: QueueName::new("q").unwrap(),
            body: 5,
            key: key.map(|key| Key::new(key).unwrap()),
            headers: Headers::default(),
            created: Timestamp::from_ms(9).unwrap(),
            lease_ms: None,
            max_attempts: None,
            standing,
        }
    }

    #[test]
    fn a_message_comes_back_as_it_was() {
        let due = Timestamp::from_ms(50).unwrap();
        let now = dwell_model::Now { wall: Timestamp::from_ms(9).unwrap(), mono_ms: 0 };
        let scheduled = Standing::put(due, 4, None, now);
        let ready = Standing { state: State::Ready, ..scheduled.clone() };
        let tried = Standing { attempts: 2, ..ready.clone() };
        let mut names = QueueNames::default();
        let mut of = |standing: &Standing, key| {
            let snapshot =
                SnapshotEntry::of(message(standing.clone(), key), Timestamp::MIN, None, &mut names);
            assert_eq!((&snapshot.standing(), snapshot.state()), (standing, standing.state));
            (snapshot, message(standing.clone(), key).with_body(()))
        };
        let all = [of(&scheduled, None), of(&ready, None), of(&tried, None), of(&scheduled, Some("k"))];
        let is_plain = all.iter().map(|(snapshot, _)| snapshot.unusual.is_none());
        assert_eq!(is_plain.collect::<Vec<_>>(), [true, true, false, false]);
        for (mut snapshot, wanted) in all {
            assert_eq!(snapshot.take(&names), (wanted, Timestamp::MIN));
        }
    }

    #[test]
    fn each_name_has_one_place() {
        let mut names = QueueNames::default();
        let name = |text: &str| QueueName::new(text).unwrap();
        let places = ["a", "b", "a", "a", "c", "b"].map(|text| names.place(&name(text)));
        assert_eq!(places, [0, 1, 0, 0, 2, 1]);
        assert_eq!(names.all(), ["a", "b", "c"].map(name));
        assert_eq!(names.get(2), &name("c"));
    }
}
