//! Bodies that contain the address of their message, so that every message
//! that comes back can be identified, even if its put was never answered.

use dwell_testkit::Random;

use crate::oracle::Address;

/// The body of the message at this address: a header, and bytes derived from its number. Some bodies are text, some are not.
pub(crate) fn make(address: Address) -> Vec<u8> {
    let mut rng = Random::of(0xb0d7, address.no);
    let key = address.key.map_or(String::from("-"), |key| key.to_string());
    let mut body = format!("{} {} {key}\n", address.no, address.queue).into_bytes();
    let len = match rng.below(50) {
        0 => rng.below(40_000),
        _ => rng.below(200),
    };
    if rng.percent(50) {
        body.resize(body.len() + len as usize, b'x');
    } else {
        rng.fill(&mut body, len as usize);
    }
    body
}

/// The address in a body; `None` if it is not, byte for byte, a body of ours.
pub(crate) fn read(body: &[u8]) -> Option<Address> {
    let end = body.iter().position(|byte| *byte == b'\n')?;
    let mut words = std::str::from_utf8(&body[..end]).ok()?.split(' ');
    let no = words.next()?.parse().ok()?;
    let queue = words.next()?.parse().ok()?;
    let key = match words.next()? {
        "-" => None,
        key => Some(key.parse().ok()?),
    };
    let address = Address { queue, key, no };
    (make(address) == body).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_gives_back_its_address_and_any_damage_is_noticed() {
        for no in 1..200 {
            let address = Address { queue: 3, key: (no % 2 == 0).then_some(7), no };
            let mut body = make(address);
            assert_eq!(read(&body), Some(address));
            let last = body.len() - 1;
            body[last] ^= 1;
            assert_eq!(read(&body), None);
            body.pop();
            assert_eq!(read(&body), None);
        }
        assert_eq!(read(b""), None);
    }
}
