//! base64url without padding (RFC 4648 §5), the alphabet of receipts and cursors.

use ::base64::Engine as _;
use ::base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes `text`. `None` for anything but the one canonical encoding of some bytes.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
