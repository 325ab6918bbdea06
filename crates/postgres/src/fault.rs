//! What an error of the server means: by its SQLSTATE alone, since messages are translated.

/// What an error of the server means to the call that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A refusal of ours, SQLSTATE class `DW`: its DETAIL has the code.
    Refused,
    /// Somebody's open transaction holds the key or the message.
    Busy,
    /// A deadlock or a serialization failure: nothing was done, and the same call at once may succeed.
    Repeat,
    /// The server cannot be used now: it starts, ends, or has cut the call off.
    Unavailable,
    /// The server takes no more: connections, locks or memory.
    Overloaded,
    /// This server is a standby, or was set to read only: another one may do.
    ReadOnly,
    /// The disk is full; acks fail too.
    DiskFull,
    /// The role lacks a right.
    NotGranted,
    /// The schema is not there, or is not what this version knows.
    Foreign,
    /// The numbers of messages are used up.
    Exhausted,
    /// Anything else: ours to mend.
    Unexpected,
}

impl Fault {
    /// What this SQLSTATE means.
    pub fn of(sqlstate: &str) -> Fault {
        match sqlstate {
            "55P03" => Fault::Busy,
            "40001" | "40P01" => Fault::Repeat,
            "57P01" | "57P02" | "57P03" | "57P05" | "57014" | "25P03" | "25P04" => Fault::Unavailable,
            "53300" | "53200" | "53400" => Fault::Overloaded,
            "25006" => Fault::ReadOnly,
            "53100" | "58030" => Fault::DiskFull,
            "42501" => Fault::NotGranted,
            "2200H" => Fault::Exhausted,
            "3F000" | "42P01" | "42703" | "42883" => Fault::Foreign,
            _ if sqlstate.starts_with("DW") => Fault::Refused,
            _ if sqlstate.starts_with("08") => Fault::Unavailable,
            _ => Fault::Unexpected,
        }
    }

    /// Whether the same call may succeed later, with nothing else changed by the caller. A refusal says so by its code.
    pub fn is_retryable(self) -> bool {
        match self {
            Fault::Busy
            | Fault::Repeat
            | Fault::Unavailable
            | Fault::Overloaded
            | Fault::ReadOnly
            | Fault::DiskFull => true,
            Fault::Refused | Fault::NotGranted | Fault::Foreign | Fault::Exhausted | Fault::Unexpected => {
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_meaning() {
        for (sqlstate, fault) in [
            ("DW101", Fault::Refused),
            ("55P03", Fault::Busy),
            ("40P01", Fault::Repeat),
            ("08006", Fault::Unavailable),
            ("57014", Fault::Unavailable),
            ("53300", Fault::Overloaded),
            ("25006", Fault::ReadOnly),
            ("53100", Fault::DiskFull),
            ("42501", Fault::NotGranted),
            ("3F000", Fault::Foreign),
            ("2200H", Fault::Exhausted),
            ("22012", Fault::Unexpected),
        ] {
            assert_eq!(Fault::of(sqlstate), fault, "{sqlstate}");
        }
        assert!(Fault::DiskFull.is_retryable() && !Fault::Foreign.is_retryable());
    }
}
