//! The server's certificate and key, and the authority that has to have signed clients' certificates, if there is one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::listener::Stream;

/// The timeout of a handshake: a round trip or two, and some computation.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The files of the certificate and key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1, without a passphrase.
    pub key: PathBuf,
    /// Certificates of authorities: a client has to present a certificate that one of them has signed.
    pub client_ca: Option<PathBuf>,
}

/// Why the certificate and key cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {source}; name a file that this user may read", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// A file has other content.
    #[error("{}: {reason}", .file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what is expected.
        reason: String,
    },
}

impl TlsError {
    /// The stable code of this kind.
    pub fn code(&self) -> &'static str {
        match self {
            TlsError::Unreadable { .. } => "tls_unreadable",
            TlsError::Invalid { .. } => "tls_invalid",
        }
    }

    /// The file that the error is about.
    pub fn file(&self) -> &Path {
        match self {
            TlsError::Unreadable { file, .. } | TlsError::Invalid { file, .. } => file,
        }
    }
}

/// The TLS 1.2 and 1.3 configuration of a listener. Cloning is cheap.
#[derive(Clone)]
pub struct Tls {
    config: Arc<rustls::ServerConfig>,
    asks_for_certificates: bool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asks = self.asks_for_certificates;
        f.debug_struct("Tls").field("asks_for_certificates", &asks).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files, and checks that key and certificate match.
    ///
    /// # Errors
    /// [`TlsError`], which names the file.
    pub fn load(files: &TlsFiles) -> Result<Tls, TlsError> {
        let chain = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(|error| {
            invalid(&files.key, &unlike_pem(&error, "a private key without a passphrase"))
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&files.certificate, &error))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(file)? {
                    roots.add(certificate).map_err(|error| invalid(file, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| invalid(file, &error))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let certificate = files.certificate.display();
                invalid(&files.key, &format_args!("this is not the key of the certificate in {certificate}"))
            }
            other => invalid(&files.certificate, &other),
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { config: Arc::new(config), asks_for_certificates: files.client_ca.is_some() })
    }

    /// Whether clients without a certificate are refused.
    pub fn asks_for_certificates(&self) -> bool {
        self.asks_for_certificates
    }

    /// Performs the handshake with a client; `None` if it fails, of which a TLS alert informs the client.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Option<Stream> {
        let accepted = timeout(HANDSHAKE, TlsAcceptor::from(Arc::clone(&self.config)).accept(stream)).await;
        accepted.ok()?.ok().map(Stream::encrypted)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|source| TlsError::Unreadable { file: file.to_owned(), source })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(file)?).collect();
    let certificates = certificates.map_err(|error| invalid(file, &unlike_pem(&error, "certificates")))?;
    if certificates.is_empty() {
        return Err(invalid(file, &unlike_pem(&pem::Error::NoItemsFound, "certificates")));
    }
    Ok(certificates)
}

/// The message does not quote the file: it may be the key.
fn unlike_pem(error: &pem::Error, expected: &str) -> String {
    let found = match error {
        pem::Error::NoItemsFound => "there is none",
        _ => "what is there cannot be read",
    };
    format!("{expected} in PEM (-----BEGIN …) must be here, and {found}")
}

fn invalid(file: &Path, reason: &dyn fmt::Display) -> TlsError {
    TlsError::Invalid { file: file.to_owned(), reason: reason.to_string() }
}
