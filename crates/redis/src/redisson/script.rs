//! Redisson-side scripts: each `.lua` file with what it needs before it, sent by its digest.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind};

use crate::Link;

/// One script.
pub(crate) struct Script {
    code: String,
    sha1: String,
}

impl Script {
    fn new(parts: &[&str]) -> Script {
        let code = parts.concat();
        let sha1 = redis::Script::new(&code).get_hash().to_owned();
        Script { code, sha1 }
    }

    /// Runs it; a server that does not know it is given its text.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> RedisResult<T> {
        let by_digest = self.command("EVALSHA", &self.sha1, keys, arguments);
        match link.ask(&by_digest).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                link.ask(&self.command("EVAL", &self.code, keys, arguments)).await
            }
            answer => answer,
        }
    }

    fn command(&self, name: &str, script: &str, keys: &[String], arguments: &[Vec<u8>]) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(keys.len()).arg(keys).arg(arguments);
        command
    }
}

/// An argument in decimal.
pub(crate) fn decimal(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

macro_rules! scripts {
    ($($name:ident: $($file:literal)+;)+) => {
        $(pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(&[include_str!("lua/common.lua"), $(include_str!(concat!("lua/", $file, ".lua"))),+])
        });)+

        /// All of them, by name.
        #[cfg(test)]
        pub(crate) fn all() -> Vec<(&'static str, &'static Script)> {
            vec![$((stringify!($name), &*$name)),+]
        }
    };
}

scripts! {
    OFFER: "offer";
    OFFER_AS: "offer_as";
    CANCEL_AS: "cancel_as";
    DEBOUNCE: "element" "debounce";
    FIND: "element" "find";
    TAKE_OUT: "take_out";
    MOVE: "element" "move";
    MEND: "element" "mend";
    CLAIM: "claim_common" "claim";
    SETTLE: "claim_common" "settle";
    REVIVE: "revive";
    LOOK: "look";
    FIX: "fix";
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn every_script_says_its_keys_its_reply_and_its_cost() {
        for (name, script) in all() {
            for part in ["-- KEYS", "-- reply", "-- cost"] {
                assert!(script.code.contains(part), "{name} says no '{part}'");
            }
            assert_eq!(script.sha1.len(), 40, "{name}");
        }
    }
}
