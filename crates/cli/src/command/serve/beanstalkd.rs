//! `--beanstalkd`: where beanstalkd's protocol is spoken, if at all.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use dwell_server::{BeanstalkdConfig, BindError};

/// An address, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BeanstalkdAt(Option<SocketAddr>);

impl FromStr for BeanstalkdAt {
    type Err = String;

    fn from_str(text: &str) -> Result<BeanstalkdAt, String> {
        if text == "off" {
            return Ok(BeanstalkdAt(None));
        }
        let address = text.parse();
        address
            .map(|address| BeanstalkdAt(Some(address)))
            .map_err(|_| "an address with a port such as 127.0.0.1:11300, or 'off'".to_owned())
    }
}

impl fmt::Display for BeanstalkdAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("off"),
        }
    }
}

impl BeanstalkdAt {
    /// What the server is told.
    pub(crate) fn config(self, insecure: bool) -> Option<BeanstalkdConfig> {
        self.0.map(|address| {
            let mut config = BeanstalkdConfig::default();
            config.listen = address;
            config.insecure = insecure;
            config
        })
    }

    /// What to do besides if it is this address that can not be listened on.
    pub(crate) fn hint(self, error: &BindError) -> &'static str {
        if self.0 == Some(error.address()) {
            "; --beanstalkd ADDRESS moves beanstalkd's protocol, --beanstalkd off does without it"
        } else {
            ""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_refuses_the_rest() {
        for text in ["off", "127.0.0.1:11300", "[::1]:0"] {
            assert_eq!(text.parse::<BeanstalkdAt>().unwrap().to_string(), text);
        }
        for bad in ["", "on", "11300", ":11300", "localhost", "127.0.0.1"] {
            assert!(bad.parse::<BeanstalkdAt>().is_err(), "{bad}");
        }
    }
}
