//! Options for authentication and trust: tokens and certificates.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use dwell_client::{Builder, Client};
use dwell_store::Blocking;

use crate::exit::{Exit, Failure};

/// Options of all commands that connect to a server.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Access {
    /// The token that the server knows you by; others can see it on the command line: better in a file or in the
    /// environment
    #[arg(
        long = "access-token",
        global = true,
        env = "DWELL_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    access_token: Option<Secret>,
    /// A file that holds the token
    #[arg(long, global = true, env = "DWELL_TOKEN_FILE", value_name = "FILE")]
    access_token_file: Option<PathBuf>,
    /// CA certificates in PEM, one of which has to have signed the server's; for https://
    #[arg(long, global = true, env = "DWELL_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Your own certificate in PEM, where the server requires one
    #[arg(
        long,
        global = true,
        env = "DWELL_CLIENT_CERTIFICATE",
        requires = "client_key",
        value_name = "FILE"
    )]
    client_certificate: Option<PathBuf>,
    /// Its private key in PEM
    #[arg(
        long,
        global = true,
        env = "DWELL_CLIENT_KEY",
        requires = "client_certificate",
        value_name = "FILE"
    )]
    client_key: Option<PathBuf>,
}

/// A text that debug output does not show.
#[derive(Clone)]
struct Secret(String);

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Secret, Self::Err> {
        Ok(Secret(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A client of a server, for a thread that may block.
pub(crate) type Server = Blocking<Client>;

impl Access {
    /// A client of the server at `url`.
    ///
    /// # Errors
    /// If a file cannot be read, or has other content.
    pub(crate) fn client(&self, url: &str) -> Result<Server, Failure> {
        Ok(self.apply(Client::builder(url))?.build()?.blocking())
    }

    fn apply(&self, mut builder: Builder) -> Result<Builder, Failure> {
        // A file takes precedence over a variable, which may be left from something else.
        let token = match (&self.access_token_file, &self.access_token) {
            (Some(file), _) => Some(read_text(file)?),
            (None, Some(token)) => Some(token.0.clone()).filter(|token| !token.is_empty()),
            (None, None) => None,
        };
        if let Some(token) = token {
            builder = builder.token(&token);
        }
        if let Some(file) = &self.ca {
            builder = builder.ca_pem(read_text(file)?.as_bytes());
        }
        if let (Some(certificate), Some(key)) = (&self.client_certificate, &self.client_key) {
            builder = builder.certificate_pem(read_text(certificate)?.as_bytes(), &read_text(key)?);
        }
        Ok(builder)
    }
}

fn read_text(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file)
        .map_err(|error| Failure::new(Exit::Usage, "bad_credentials", format!("{}: {error}", file.display())))
}
