//! Checks the addresses that a message's URL may lead to: those of the public internet, and of allowed networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::error::excerpt;
use crate::{Error, Result};

/// A range of addresses, written `10.1.0.0/16` or `fd00:1::/32`. A single address is a range of its own.
///
/// ```
/// let network: dwell_delivery::sinks::webhook::Network = "10.1.0.0/16".parse()?;
/// assert!(network.contains("10.1.2.3".parse().unwrap()));
/// assert!(!network.contains("10.2.0.0".parse().unwrap()));
/// # Ok::<(), dwell_delivery::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u32,
}

impl Network {
    /// Whether the network contains the address. An IPv4-mapped IPv6 address counts as its IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                same(u128::from(base.to_bits()), u128::from(address.to_bits()), 32 - self.prefix)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                same(base.to_bits(), address.to_bits(), 128 - self.prefix)
            }
            _ => false,
        }
    }
}

/// Whether two addresses are equal except for their last bits.
fn same(one: u128, other: u128, but_for: u32) -> bool {
    (one ^ other).checked_shr(but_for).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Network> {
        let refuse = || Error::InvalidSink {
            reason: format!("'{}' is no network; write one as 10.1.0.0/16 or fd00:1::/32", excerpt(text))
                .into(),
        };
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| refuse())?;
        let bits = if base.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(bits), str::parse::<u32>).map_err(|_| refuse())?;
        if prefix > bits {
            return Err(refuse());
        }
        Ok(Network { base, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

/// Checks an address that a name resolved to. Addresses in `allowed` networks need not be public.
///
/// # Errors
/// [`Error::RefusedAddress`] with the kind of the address.
pub fn check(address: IpAddr, allowed: &[Network]) -> Result<()> {
    if allowed.iter().any(|network| network.contains(address)) {
        return Ok(());
    }
    match special(address) {
        None => Ok(()),
        Some(kind) => Err(Error::RefusedAddress { address, kind: kind.into() }),
    }
}

/// The purpose of an address that is not on the public internet.
fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// The registry of special IPv4 addresses (RFC 6890 and its successors), and a metadata service outside of it.
fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let kind = match address.octets() {
        [0, ..] => "this host",
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => "private",
        [100, 64..=127, ..] => "shared by a carrier",
        [127, ..] => "loopback",
        [169, 254, ..] => "link-local",
        // Azure's, reachable from each of its machines; a public address otherwise.
        [168, 63, 129, 16] => "metadata",
        [192, 0, 0, _] => "kept for protocols",
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => "documentation",
        [192, 88, 99, _] => "6to4 relay",
        [198, 18..=19, ..] => "benchmarking",
        [224..=239, ..] => "multicast",
        [240..=255, ..] => "reserved",
        _ => return None,
    };
    Some(kind)
}

/// Public are the addresses in 2000::/3 without those reserved there, and the translation of a public IPv4 address.
fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inner) = address.to_ipv4_mapped() {
        return special_v4(inner);
    }
    let kind = match address.segments() {
        // NAT64, as names resolve where there is no IPv4: the embedded address is the one that is reached.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            return special_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
        }
        [0x64, 0xff9b, 1, ..] => "local NAT64",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        [0, 0, 0, 0, 0, 0, ..] => "this host",
        [0xfc00..=0xfdff, ..] => "private",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xff00..=0xffff, ..] => "multicast",
        [0x2001, 0, ..] => "Teredo",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => "documentation",
        [0x2001, 1..=0x01ff, ..] => "kept for protocols",
        [0x2002, ..] => "6to4",
        [0x2000..=0x3fff, ..] => return None,
        _ => "reserved",
    };
    Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(address: &str) -> Option<&'static str> {
        special(address.parse().unwrap())
    }

    #[test]
    fn public_addresses_pass() {
        let public = [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:200::1",
            "2001:4860:4860::8888",
            "3ffe::1",
            "64:ff9b::1.1.1.1",
            "::ffff:1.1.1.1",
        ];
        for address in public {
            assert_eq!(kind(address), None, "{address}");
        }
    }

    #[test]
    fn all_others_are_refused_however_they_are_written() {
        let refused = [
            ("0.0.0.0", "this host"),
            ("10.0.0.1", "private"),
            ("100.100.100.200", "shared by a carrier"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.255", "loopback"),
            ("169.254.169.254", "link-local"),
            ("168.63.129.16", "metadata"),
            ("172.16.0.0", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "kept for protocols"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4 relay"),
            ("192.168.0.1", "private"),
            ("198.18.0.1", "benchmarking"),
            ("198.19.255.255", "benchmarking"),
            ("224.0.0.1", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "this host"),
            ("::1", "loopback"),
            ("::127.0.0.1", "this host"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:169.254.169.254", "link-local"),
            ("::ffff:a00:1", "private"),
            ("::ffff:0:127.0.0.1", "reserved"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b::7f00:1", "loopback"),
            ("64:ff9b::168.63.129.16", "metadata"),
            ("64:ff9b:1::1.1.1.1", "local NAT64"),
            ("100::1", "reserved"),
            ("fc00::1", "private"),
            ("fd00:ec2::254", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "reserved"),
            ("ff02::1", "multicast"),
            ("2001::1", "Teredo"),
            ("2001:db8::1", "documentation"),
            ("2001:20::1", "kept for protocols"),
            ("2002:7f00:1::", "6to4"),
            ("2002:101:101::", "6to4"),
            ("3fff::1", "documentation"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
        ];
        for (address, expected) in refused {
            assert_eq!(kind(address), Some(expected), "{address}");
            let error = check(address.parse().unwrap(), &[]).unwrap_err();
            assert_eq!(error.code(), "refused_address");
        }
    }

    #[test]
    fn a_network_that_is_allowed_need_not_be_public() {
        let allowed: Vec<Network> =
            ["127.0.0.0/8", "10.1.2.3", "fd00:1::/32"].map(|text| text.parse().unwrap()).into();
        for address in ["127.0.0.1", "::ffff:127.9.9.9", "10.1.2.3", "fd00:1:ffff::1", "1.1.1.1"] {
            assert_eq!(check(address.parse().unwrap(), &allowed), Ok(()), "{address}");
        }
        for address in ["10.1.2.4", "fd00:2::1", "::1", "64:ff9b::127.0.0.1", "192.168.0.1"] {
            assert!(check(address.parse().unwrap(), &allowed).is_err(), "{address}");
        }
        let all: [Network; 2] = ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        assert!(all[0].contains("255.0.0.1".parse().unwrap()) && all[1].contains("ff02::1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "/8", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "localhost", "10.0/8"] {
            let error = text.parse::<Network>().unwrap_err();
            assert_eq!(error.code(), "invalid_sink", "{text}");
        }
        assert_eq!("10.1.0.0/16".parse::<Network>().unwrap().to_string(), "10.1.0.0/16");
    }
}
