//! The web page: its files, which the server embeds, and the answers that carry them.
//!
//! The files are in `assets/`. The page calls `/v1` like any other client, and nothing here depends on queues. The
//! reasons are in `docs/decisions/2026-11-26-page.md`.
//!
//! Ground rules:
//! 1. A file's URL contains the digest of all files. Its content never changes, and may be cached for ever.
//! 2. The document is never cached: it names the files of the server that answers now.
//! 3. The document's content security policy allows its own scripts alone, and allows no script to turn text into
//!    markup.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response, header};
use bytes::Bytes;

/// A file, plain and compressed.
struct File {
    name: &'static str,
    content_type: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

mod files {
    use super::File;
    include!(concat!(env!("OUT_DIR"), "/page_files.rs"));
}

/// The content security policy: load own scripts, styles and images, and connect to the own server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// The document, compressed for clients that accept gzip.
pub(crate) fn document(takes_gzip: bool) -> Response<Body> {
    let mut response = answer(&files::DOCUMENT, takes_gzip, "Accept, Accept-Encoding");
    let mut set = |name: HeaderName, value: &'static str| {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    };
    set(header::CACHE_CONTROL, "no-store");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    response
}

/// A file of the page, if the digest is that of this version.
pub(crate) fn file(digest: &str, name: &str, takes_gzip: bool) -> Option<Response<Body>> {
    let file = files::FILES.iter().find(|file| digest == files::DIGEST && file.name == name)?;
    let mut response = answer(file, takes_gzip, "Accept-Encoding");
    response.headers_mut().insert(header::CACHE_CONTROL, FOREVER);
    Some(response)
}

fn answer(file: &'static File, takes_gzip: bool, vary: &'static str) -> Response<Body> {
    let bytes = if takes_gzip { file.gzip } else { file.plain };
    let mut response = Response::new(Body::from(Bytes::from_static(bytes)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    headers.insert(header::VARY, HeaderValue::from_static(vary));
    if takes_gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum size of the files of the first view in bytes, which leaves room for the heads of their answers.
    const FIRST_VIEW_BYTES: usize = 50_000;

    /// The files that the document names. A test of the page checks that the first view loads no others.
    fn named() -> Vec<&'static File> {
        let document = std::str::from_utf8(files::DOCUMENT.plain).unwrap();
        assert!(!document.contains('{'), "a mark is left: {document}");
        let paths = document.split('"').filter_map(|text| text.strip_prefix("page/"));
        let names = paths.map(|path| path.strip_prefix(files::DIGEST).unwrap().strip_prefix('/').unwrap());
        names.map(|name| files::FILES.iter().find(|file| file.name == name).unwrap()).collect()
    }

    #[test]
    fn the_first_view_is_small() {
        let mut named = named();
        named.sort_by_key(|file| file.name);
        named.dedup_by_key(|file| file.name);
        assert!(named.len() > 20, "{} files", named.len());
        let sent: usize = named.into_iter().chain([&files::DOCUMENT]).map(|file| file.gzip.len()).sum();
        assert!(sent <= FIRST_VIEW_BYTES, "{sent} bytes");
    }

    #[test]
    fn the_files_call_nothing_that_reads_markup_or_code_from_text() {
        let sinks = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "new Function",
            "setHTML",
            "srcdoc",
            "createContextualFragment",
        ];
        for file in files::FILES.iter().chain([&files::DOCUMENT]) {
            let text = std::str::from_utf8(file.plain).unwrap();
            for sink in sinks {
                assert!(!text.contains(sink), "{} has {sink}", file.name);
            }
            let others = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!others.contains("://"), "{} names another host", file.name);
        }
    }

    #[test]
    fn another_version_and_another_name_are_not_there() {
        assert!(file("0000000000000000", "main.js", true).is_none());
        for name in ["", "index.html", "../mod.rs", "main.js.gz", "MAIN.JS"] {
            assert!(file(files::DIGEST, name, true).is_none(), "{name}");
        }
    }

    #[test]
    fn files_are_kept_for_ever_and_the_document_is_not() {
        let kept = file(files::DIGEST, "main.js", true).unwrap();
        assert_eq!(kept.headers()[header::CACHE_CONTROL], FOREVER);
        assert_eq!(kept.headers()[header::CONTENT_ENCODING], "gzip");
        let document = document(false);
        assert_eq!(document.headers()[header::CACHE_CONTROL], "no-store");
        assert!(!document.headers().contains_key(header::CONTENT_ENCODING));
        assert_eq!(document.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        assert!(!POLICY.contains("unsafe") && POLICY.contains("require-trusted-types-for 'script'"));
    }
}
