//! Bearer tokens (RFC 6750): only their digests are stored, and a sent token is compared with all of them in constant
//! time.
//!
//! A token has 256 random bits, so a plain SHA-256 is enough: it cannot be guessed, which is what salt or a slow hash
//! would protect from.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use dwell_model::QueueName;
use dwell_wire::Verb;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use thiserror::Error;

use super::scope::Scope;

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenDigest([u8; 32]);

/// A text that is not a digest. It is not repeated: it may be the token itself, in the wrong field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a digest has 64 hexadecimal digits; `dwell token new` prints a token and its digest")]
pub struct MalformedDigest;

impl TokenDigest {
    /// The digest of a token as its bearer sends it.
    pub fn of(token: &[u8]) -> TokenDigest {
        TokenDigest(Sha256::digest(token).into())
    }

    /// Short, and enough to distinguish it by eye.
    pub fn abbreviated(&self) -> String {
        self.to_string().chars().take(8).chain(['…']).collect()
    }
}

impl FromStr for TokenDigest {
    type Err = MalformedDigest;

    fn from_str(text: &str) -> Result<TokenDigest, MalformedDigest> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(MalformedDigest);
        }
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| MalformedDigest)?;
        }
        Ok(TokenDigest(bytes))
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.abbreviated())
    }
}

/// A token that the server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The name that operators gave it.
    pub name: String,
    /// The digest of its secret.
    pub digest: TokenDigest,
    /// What it allows.
    pub scopes: Vec<Scope>,
}

/// All tokens that a server accepts. Without any, callers are not authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Arc<Token>>);

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The server has no tokens: any caller may do everything.
    Anybody,
    /// No token was sent.
    Nameless,
    /// The bearer of this token.
    Bearer(Arc<Token>),
}

/// Where the queues that a caller may know of begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownQueues {
    /// After this name; at the first queue without it.
    Behind(Option<QueueName>),
    /// Nowhere: there are none.
    Nothing,
}

/// The greatest possible name before `name`: after it come `name` and all names with that prefix. `None` if there is
/// none, or it is not a name.
pub(crate) fn just_before(name: &str) -> Option<QueueName> {
    const LAST: char = 'z';
    let is_allowed = |c: char| QueueName::new(&format!("a{c}")).is_ok();
    let mut begin = name.to_owned();
    let last = begin.pop()?;
    if let Some(lower) = ('\0'..last).rev().find(|c| is_allowed(*c)) {
        begin.push(lower);
        begin.extend(std::iter::repeat_n(LAST, QueueName::MAX_LEN - begin.len()));
    }
    QueueName::new(&begin).ok()
}

impl Tokens {
    /// A list of tokens.
    pub fn new(tokens: Vec<Token>) -> Tokens {
        Tokens(tokens.into_iter().map(Arc::new).collect())
    }

    /// Whether callers are not authenticated.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All tokens.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.iter().map(Arc::as_ref)
    }

    /// The caller with `token`; `None` if the server does not accept it.
    pub fn caller(&self, token: Option<&[u8]>) -> Option<Caller> {
        match token {
            _ if self.is_empty() => Some(Caller::Anybody),
            None => Some(Caller::Nameless),
            Some(token) => self.find(&TokenDigest::of(token)).map(Caller::Bearer),
        }
    }

    /// Whether `caller` is still known: its token is among these, with the same scopes. A caller without a token is
    /// not, once there are tokens.
    pub(crate) fn know(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Anybody => self.is_empty(),
            Caller::Nameless => true,
            Caller::Bearer(token) => self.0.contains(token),
        }
    }

    /// Compares all digests, each in constant time, and does not stop at a match: the duration reveals nothing of how
    /// much was right.
    fn find(&self, shown: &TokenDigest) -> Option<Arc<Token>> {
        let mut found = None;
        for token in &self.0 {
            let same: Choice = token.digest.0.ct_eq(&shown.0);
            if bool::from(same) {
                found = Some(token);
            }
        }
        found.map(Arc::clone)
    }
}

impl Caller {
    /// Whether the caller may do `verb` in `queue`.
    pub fn may(&self, verb: Verb, queue: &QueueName) -> bool {
        self.has(|scope| scope.allows(verb, queue))
    }

    /// Whether the caller may do `verb` in every possible queue.
    pub fn may_everywhere(&self, verb: Verb) -> bool {
        self.has(|scope| scope.allows_everywhere(verb))
    }

    /// Whether the caller may do anything in `queue`, and so may know of it.
    pub fn may_something(&self, queue: &QueueName) -> bool {
        self.has(|scope| scope.allows_something(queue))
    }

    /// The position after `after`, in the order of names, of the first queues that the caller may know of: names right
    /// after it may be unknown to the caller, but no known one is before it.
    pub(crate) fn known_behind(&self, after: Option<&QueueName>) -> KnownQueues {
        let token = match self {
            Caller::Anybody => return KnownQueues::Behind(after.cloned()),
            Caller::Nameless => return KnownQueues::Nothing,
            Caller::Bearer(token) => token,
        };
        let mut next: Option<&str> = None;
        for (name, is_prefix) in token.scopes.iter().filter_map(Scope::begins) {
            let goes_on = |after: &QueueName| after.as_str().starts_with(name);
            if is_prefix && (name.is_empty() || after.is_some_and(goes_on)) {
                return KnownQueues::Behind(after.cloned());
            }
            if after.is_none_or(|after| after.as_str() < name) && next.is_none_or(|next| name < next) {
                next = Some(name);
            }
        }
        // Where no name comes right before another, more queues are read than needed.
        next.map_or(KnownQueues::Nothing, |next| KnownQueues::Behind(just_before(next).max(after.cloned())))
    }

    fn has(&self, allows: impl Fn(&Scope) -> bool) -> bool {
        match self {
            Caller::Anybody => true,
            Caller::Nameless => false,
            Caller::Bearer(token) => token.scopes.iter().any(allows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(name: &str, secret: &str, scopes: &[&str]) -> Token {
        let scopes = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
        Token { name: name.to_owned(), digest: TokenDigest::of(secret.as_bytes()), scopes }
    }

    #[test]
    fn the_digest_is_sha_256_and_is_read_as_it_is_written() {
        // FIPS 180-2, appendix B.1.
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenDigest::of(b"abc").to_string(), text);
        assert_eq!(text.parse(), Ok(TokenDigest::of(b"abc")));
        assert_eq!(text.to_uppercase().parse(), Ok(TokenDigest::of(b"abc")));
        let (long, foreign) = (format!("{text}0"), text.replace('b', "g"));
        for bad in ["", "abc", &text[1..], &long, &foreign, &"ä".repeat(32), &"+f".repeat(32)] {
            assert_eq!(bad.parse::<TokenDigest>(), Err(MalformedDigest), "{bad}");
        }
    }

    #[test]
    fn nobody_is_asked_where_there_are_no_tokens() {
        let caller = Tokens::default().caller(None).unwrap();
        assert_eq!(caller, Caller::Anybody);
        assert!(caller.may(Verb::Manage, &"q".parse().unwrap()) && caller.may_everywhere(Verb::Metrics));
        assert_eq!(Tokens::default().caller(Some(b"x")), Some(Caller::Anybody));
    }

    #[test]
    fn a_token_is_good_for_its_scopes_alone() {
        let tokens = Tokens::new(vec![
            token("a", "secret a", &["put:orders*", "take:orders"]),
            token("b", "secret b", &["manage:*"]),
        ]);
        let nameless = tokens.caller(None).unwrap();
        assert_eq!(nameless, Caller::Nameless);
        for unknown in ["", "secret", "secret a ", "a"] {
            assert_eq!(tokens.caller(Some(unknown.as_bytes())), None, "{unknown}");
        }
        let (orders, mails) = ("orders".parse().unwrap(), "mails".parse().unwrap());
        let a = tokens.caller(Some(b"secret a")).unwrap();
        assert!(a.may(Verb::Put, &orders) && a.may(Verb::Take, &orders) && a.may_something(&orders));
        assert!(!a.may(Verb::Manage, &orders) && !a.may(Verb::Put, &mails) && !a.may_something(&mails));
        let b = tokens.caller(Some(b"secret b")).unwrap();
        assert!(b.may_everywhere(Verb::Manage) && b.may(Verb::Manage, &mails) && !b.may(Verb::Put, &mails));
        assert!(!nameless.may(Verb::Put, &orders) && !nameless.may_something(&orders));
    }

    #[test]
    fn a_caller_is_known_for_as_long_as_its_token_is_there_as_it_was() {
        let then = Tokens::new(vec![token("a", "secret", &["put:q"]), token("b", "other", &["take:q"])]);
        let bearer = then.caller(Some(b"secret")).unwrap();
        let again = token("a", "secret", &["put:q"]);
        for (now, is_known) in [
            (vec![again.clone()], true),
            (vec![token("b", "other", &["put:q"]), again], true),
            (vec![token("b", "other", &["put:q"])], false),
            // A new secret, or another scope.
            (vec![token("a", "new", &["put:q"])], false),
            (vec![token("a", "secret", &["put:r"])], false),
            (vec![token("a", "secret", &["put:q", "take:q"])], false),
            (vec![], false),
        ] {
            let now = Tokens::new(now);
            assert_eq!(now.know(&bearer), is_known, "{now:?}");
            assert_eq!(now.know(&Caller::Anybody), now.is_empty(), "{now:?}");
            assert!(now.know(&Caller::Nameless), "who may do nothing goes on to");
        }
    }

    /// For all names of up to three of some letters, and each pair of scopes of up to two letters: the names that the
    /// caller may know of come after the position, and the position never moves back.
    #[test]
    fn no_listing_passes_over_what_the_caller_may_know_of_or_goes_back() {
        let all = |longest: usize| {
            let mut texts = vec![String::new()];
            let mut from = 0;
            for _ in 0..longest {
                let next: Vec<String> = texts[from..]
                    .iter()
                    .flat_map(|text| ["$", ".", "a", "z"].map(|c| format!("{text}{c}")))
                    .collect();
                from = texts.len();
                texts.extend(next);
            }
            texts
        };
        let mut names: Vec<QueueName> = all(3).iter().filter_map(|text| QueueName::new(text).ok()).collect();
        names.sort();
        let scopes: Vec<Scope> = all(2)
            .iter()
            .flat_map(|text| [format!("put:{text}"), format!("take:{text}*")])
            .filter_map(|text| text.parse().ok())
            .collect();
        assert_eq!((names.len(), scopes.len()), (82, 37));
        for (one, other) in scopes.iter().flat_map(|one| scopes.iter().map(move |other| (one, other))) {
            let token = Token { scopes: vec![one.clone(), other.clone()], ..token("a", "secret", &[]) };
            let caller = Caller::Bearer(Arc::new(token));
            let mut first: Option<&QueueName> = None;
            for after in names.iter().rev().map(Some).chain([None]) {
                let place = caller.known_behind(after);
                let said = || format!("{one} {other} behind {after:?}: {place:?}, and first comes {first:?}");
                match &place {
                    KnownQueues::Nothing => assert_eq!(first, None, "{}", said()),
                    KnownQueues::Behind(place) => {
                        assert!(place.as_ref() >= after, "{}", said());
                        assert!(first.is_none_or(|first| place.as_ref() < Some(first)), "{}", said());
                    }
                }
                first = after.filter(|name| caller.may_something(name)).or(first);
            }
        }
    }

    #[test]
    fn just_before_a_name_nothing_fits_between() {
        let name = |text: &str| QueueName::new(text).unwrap();
        for (text, before) in [
            ("b", format!("a{}", "z".repeat(199))),
            ("orders", format!("orderr{}", "z".repeat(194))),
            ("a0", format!("a/{}", "z".repeat(198))),
            // The lowest character of a name: nothing comes between.
            ("a$", "a".to_owned()),
        ] {
            assert_eq!(just_before(text).unwrap().as_str(), before, "{text}");
            assert!(just_before(text).unwrap() < name(text));
        }
        // Nothing comes before the first name; and no name comes before these.
        assert_eq!(just_before("$"), None);
        assert_eq!(just_before("."), None);
        assert!(('\0'..'\u{80}').all(|c| c <= 'z' || QueueName::new(&format!("a{c}")).is_err()));
    }

    #[test]
    fn a_listing_goes_on_where_the_caller_may_know_of_something() {
        let caller = |scopes: &[&str]| {
            let tokens = Tokens::new(vec![token("a", "secret", scopes)]);
            tokens.caller(Some(b"secret")).unwrap()
        };
        let name = |text: &str| QueueName::new(text).unwrap();
        let behind = |caller: &Caller, after: Option<&str>| caller.known_behind(after.map(name).as_ref());
        let some = caller(&["put:b*", "take:d", "metrics"]);
        assert_eq!(behind(&some, None), KnownQueues::Behind(just_before("b")));
        for inside in ["b", "b7", "bz"] {
            assert_eq!(behind(&some, Some(inside)), KnownQueues::Behind(Some(name(inside))));
        }
        assert_eq!(behind(&some, Some("c")), KnownQueues::Behind(just_before("d")));
        assert_eq!(behind(&some, Some("d")), KnownQueues::Nothing);
        assert_eq!(
            behind(&caller(&["take:d", "put:b*"]), None),
            KnownQueues::Behind(just_before("b")),
            "in any order"
        );
        assert_eq!(behind(&caller(&["metrics"]), None), KnownQueues::Nothing);
        assert_eq!(behind(&caller(&["take:a", "manage:*"]), Some("x")), KnownQueues::Behind(Some(name("x"))));
        assert_eq!(behind(&caller(&["put:$"]), None), KnownQueues::Behind(None));
        assert_eq!(behind(&Caller::Anybody, None), KnownQueues::Behind(None));
        assert_eq!(behind(&Caller::Nameless, None), KnownQueues::Nothing);
    }

    #[test]
    fn nothing_shows_a_digest_whole() {
        let shown = format!("{:?}", Tokens::new(vec![token("a", "abc", &["metrics"])]));
        assert!(shown.contains("ba7816bf…") && !shown.contains("ba7816bf8"), "{shown}");
    }
}
