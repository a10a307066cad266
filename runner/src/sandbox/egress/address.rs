//! Which addresses are on the public internet. Everything else is refused, whatever name led to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is public: not loopback, private, link-local, metadata, carrier, multicast, reserved,
/// documentation, or a wrapping of such an address in IPv6.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_public_v4(mapped),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // Global unicast, without the special block (Teredo, ORCHID), documentation and 6to4.
    (0x2000..=0x3fff).contains(&a)
        && !(a == 0x2001 && b < 0x0200)
        && !(a == 0x2001 && b == 0x0db8)
        && a != 0x2002
        && !(a == 0x3fff && b < 0x1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_public_internet_is_public() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "127.0.0.1",
            "127.255.0.1",
            "100.64.0.1",
            "100.127.1.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.170",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.1.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2001:db8::1",
            "2001::1",
            "2002:7f00:1::",
            "3fff::1",
            "fec0::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text} is public");
        }
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860:4860::8888",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text} is not public");
        }
    }

    proptest! {
        #[test]
        fn wrapping_an_address_changes_nothing(bits: u32) {
            let plain = Ipv4Addr::from(bits);
            prop_assert_eq!(is_public(plain.into()), is_public(plain.to_ipv6_mapped().into()));
        }
    }
}
