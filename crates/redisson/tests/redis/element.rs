//! The two decoders of packed elements, in Rust and Lua, on the same bytes.

use dwell_redis::Link;
use dwell_redisson::{Element, Layout, decode_element, encode_element};
use dwell_testkit::redis::Server;

use crate::run;

const LUA: &str = include_str!("../../src/lua/element.lua");

/// The result of the Lua decoder.
async fn lua(link: &Link, packed: &[u8]) -> Option<(Vec<u8>, String, Vec<u8>)> {
    let script = format!(
        "{LUA}\nlocal payload, layout, id = read_element(ARGV[1])\nreturn payload and {{payload, layout, id}}"
    );
    link.ask(redis::cmd("EVAL").arg(script).arg(0).arg(packed)).await.expect("the script runs")
}

fn rust(packed: &[u8]) -> Option<(Vec<u8>, String, Vec<u8>)> {
    let Element { layout, id, payload } = decode_element(packed).ok()?;
    Some((payload.to_vec(), layout.to_string(), id.to_vec()))
}

/// Elements of every kind, and variants with a byte changed, cut or added.
fn bytes() -> Vec<Vec<u8>> {
    let ids = [
        [0; 8],
        [0xff; 8],
        *b"\x08\x01\0\0\0\0\0\x01",
        *b"\x79\x09\x89\x2a\xaf\x16\xac\x43",
        *b"\x07\0\0\0\0\0\xac\x43",
    ];
    let payloads: [&[u8]; 5] = [b"", b"\0", b"hello", &[8; 30], &[0; 300]];
    let mut all = vec![Vec::new(), b"hello".to_vec(), vec![8; 17], vec![0; 16], vec![0xff; 40]];
    for layout in [Layout::Old, Layout::New] {
        for id in ids {
            for payload in payloads {
                let packed = encode_element(layout, id, payload);
                for at in 0..packed.len().min(20) {
                    all.extend([0, 1, 7, 8, 0x43, 0xff].map(|byte| {
                        let mut changed = packed.clone();
                        changed[at] = byte;
                        changed
                    }));
                    all.push(packed[..at].to_vec());
                }
                all.push([packed.as_slice(), b"x"].concat());
                all.push(packed);
            }
        }
    }
    all
}

#[test]
fn rust_and_lua_read_the_same() {
    run(async {
        let server = Server::start();
        let link = Link::open(server.address()).await.unwrap();
        let all = bytes();
        assert!(all.len() > 4_000);
        for packed in all {
            assert_eq!(lua(&link, &packed).await, rust(&packed), "{}", packed.escape_ascii());
        }
    });
}
