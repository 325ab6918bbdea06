//! TLS: which certificates the client trusts, and the one it presents.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::OpenError;

/// The credentials for TLS, beyond the default trust store.
#[derive(Default)]
pub(crate) struct Credentials<'a> {
    /// Certificates of authorities in PEM, in place of those that Mozilla trusts.
    pub(crate) ca: Option<&'a [u8]>,
    /// The client's own certificate with its chain, and its key, in PEM.
    pub(crate) certificate: Option<(&'a [u8], &'a str)>,
}

/// The configuration of TLS 1.2 and 1.3.
pub(crate) fn config(credentials: &Credentials<'_>) -> Result<Arc<ClientConfig>, OpenError> {
    let mut roots = RootCertStore::empty();
    match credentials.ca {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in certificates(pem, "the authority's file")? {
                roots.add(certificate).map_err(|error| bad(&format!("the authority's file: {error}")))?;
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error.to_string()))?
        .with_root_certificates(roots);
    let mut config = match credentials.certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate, "the certificate's file")?;
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|_| bad("the key's file holds no private key in PEM"))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| bad(&error.to_string()))?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).filter_map(std::result::Result::ok).collect();
    if certificates.is_empty() {
        return Err(bad(&format!("{what} holds no certificate in PEM")));
    }
    Ok(certificates)
}

fn bad(reason: &str) -> OpenError {
    OpenError::BadCredentials { reason: reason.into() }
}
