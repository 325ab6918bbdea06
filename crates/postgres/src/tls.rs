//! TLS: whom a connection trusts, and what it shows of itself.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::OpenError;
use crate::address::Certificates;

/// What makes connections encrypted, with the files read. For plaintext it trusts nobody, and is not used.
///
/// # Errors
/// [`OpenError::Certificate`] and [`OpenError::Authorities`].
pub(crate) fn connector(files: Option<&Certificates>) -> Result<MakeRustlsConnect, OpenError> {
    let roots = match files {
        None => RootCertStore::empty(),
        Some(Certificates { ca: Some(ca), .. }) => named(ca)?,
        Some(Certificates { ca: None, .. }) => {
            let found = rustls_native_certs::load_native_certs();
            of_the_system(found.certs, found.errors.first())?
        }
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| OpenError::Authorities { reason: error.to_string() })?
        .with_root_certificates(roots);
    let mut config = match files.and_then(|files| files.own.as_ref()) {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let found = PrivateKeyDer::from_pem_slice(&bytes(key)?).map_err(|_| {
                unusable(key, "there is no private key in PEM in it, or it has a passphrase".to_owned())
            })?;
            builder.with_client_auth_cert(chain, found).map_err(|error| {
                unusable(key, format!("it does not go with {}: {error}", certificate.display()))
            })?
        }
    };
    // A server asks for it where TLS begins at once, as with sslnegotiation=direct.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

/// Authorities of a file.
fn named(ca: &Path) -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|error| unusable(ca, error.to_string()))?;
    }
    Ok(roots)
}

/// Authorities of the system: those that can be read.
fn of_the_system(
    found: Vec<CertificateDer<'static>>,
    error: Option<&rustls_native_certs::Error>,
) -> Result<RootCertStore, OpenError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        let reason = error.map_or_else(|| "none was found".to_owned(), ToString::to_string);
        return Err(OpenError::Authorities { reason });
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes(file)?).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        _ => Err(unusable(file, "there is no certificate in PEM in it".to_owned())),
    }
}

fn bytes(file: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(file).map_err(|error| unusable(file, error.to_string()))
}

fn unusable(file: &Path, reason: String) -> OpenError {
    OpenError::Certificate { file: file.to_owned(), reason }
}

/// What to do about a connection whose handshake has failed, where its error does not say it: text to append to that.
pub(crate) fn hint(error: &tokio_postgres::Error) -> Option<&'static str> {
    // Within an error of input and output, rustls's own is not among the sources.
    let within = error.source()?.downcast_ref::<io::Error>()?.get_ref()?;
    match within.downcast_ref::<rustls::Error>()? {
        // The second is an authority of the same name with another key.
        rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => Some(
            ": no trusted authority has signed the server's certificate; name a file of the one that has with ca",
        ),
        rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::CertificateRequired,
        ) => Some(": the server does not accept our certificate; name another with certificate and key"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_authorities_is_refused() {
        let error = of_the_system(Vec::new(), None).unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("tls_invalid", false));
        assert!(error.to_string().contains("with ca"), "{error}");
        let nonsense = vec![CertificateDer::from(vec![1, 2, 3])];
        assert!(of_the_system(nonsense, None).is_err());
    }
}
