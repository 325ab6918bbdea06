//! Files of certificates and keys that an address names.

use std::path::Path;

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::OpenError;
use crate::address::Certificates;

/// Reads the files; `None` if none is named.
///
/// # Errors
/// [`OpenError::Certificate`].
pub(super) fn read(files: &Certificates) -> Result<Option<TlsCertificates>, OpenError> {
    let root_cert = files.ca.as_deref().map(certificates).transpose()?;
    let client_tls = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            Some(ClientTlsConfig { client_cert: certificates(certificate)?, client_key: private_key(key)? })
        }
        _ => None,
    };
    let some = root_cert.is_some() || client_tls.is_some();
    Ok(some.then_some(TlsCertificates { client_tls, root_cert }))
}

fn certificates(file: &Path) -> Result<Vec<u8>, OpenError> {
    let pem = bytes(file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(pem),
        _ => Err(unusable(file, "there is no certificate in PEM in it")),
    }
}

fn private_key(file: &Path) -> Result<Vec<u8>, OpenError> {
    let pem = bytes(file)?;
    match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => Ok(pem),
        Err(_) => Err(unusable(file, "there is no private key in PEM in it")),
    }
}

fn bytes(file: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(file).map_err(|error| unusable(file, &error.to_string()))
}

fn unusable(file: &Path, reason: &str) -> OpenError {
    OpenError::Certificate { file: file.to_owned(), reason: reason.to_owned() }
}
