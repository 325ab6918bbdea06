//! The web page's files, and what keeps a message's content type from acting in the page's origin.

use dwell_model::Limits;

use crate::support::{Answer, Running, start, start_with};

const HTML: &[(&str, &str)] = &[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];

/// The URLs of the document's files.
fn addresses(document: &Answer) -> Vec<String> {
    let text = document.text();
    text.split('"').filter(|part| part.starts_with("page/")).map(|part| format!("/{part}")).collect()
}

async fn document(server: &Running) -> Answer {
    server.send("GET", "/", HTML, b"").await
}

#[tokio::test]
async fn a_browser_gets_the_page_and_others_get_text() {
    let server = start().await;
    let page = document(&server).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    for rule in ["default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    for accept in [
        &[][..],
        &[("accept", "*/*")],
        &[("accept", "application/json, text/plain")],
        &[("accept", "text/html;q=0")],
    ] {
        let text = server.send("GET", "/", accept, b"").await;
        assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"), "{accept:?}");
        assert_eq!(text.header("vary"), Some("Accept"));
    }
    assert_eq!(server.send("GET", "/?x=1", HTML, b"").await.problem(), (400, "unknown_parameter".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn every_file_of_the_page_is_there_for_ever_and_compressed_on_request() {
    let server = start().await;
    let addresses = addresses(&document(&server).await);
    assert!(addresses.len() > 20, "{addresses:?}");
    for address in &addresses {
        let plain = server.get(address).await;
        assert_eq!(plain.status, 200, "{address}");
        assert_eq!(plain.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!((plain.header("vary"), plain.header("content-encoding")), (Some("Accept-Encoding"), None));
        let small = server.send("GET", address, &[("accept-encoding", "gzip, br")], b"").await;
        assert_eq!(small.header("content-encoding"), Some("gzip"), "{address}");
        assert!(small.body.starts_with(&[0x1f, 0x8b]), "{address}");
        let refused = server.send("GET", address, &[("accept-encoding", "gzip;q=0")], b"").await;
        assert_eq!(refused.body, plain.body, "{address}");
    }
    let main = addresses.iter().find(|address| address.ends_with("/main.js")).unwrap();
    let other_version = format!("/page/0123456789abcdef{}", &main[main.rfind('/').unwrap()..]);
    for bad in [&other_version, &main.replace("main.js", "main.mjs"), &main.replace("main.js", "..%2Fmod.rs")]
    {
        assert_eq!(server.get(bad).await.problem(), (404, "unknown_route".to_owned()), "{bad}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_page_can_be_left_out() {
    let with = start().await;
    let address = addresses(&document(&with).await).pop().unwrap();
    with.stop().await;
    let without = start_with(Limits::default(), |config| config.http.page = false).await;
    assert_eq!(document(&without).await.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(without.get(&address).await.problem(), (404, "unknown_route".to_owned()));
    without.stop().await;
}

#[tokio::test]
async fn a_raw_answer_is_saved_and_not_shown() {
    let server = start().await;
    let put =
        server.send("POST", "/v1/queues/q/messages", &[("content-type", "text/html")], b"<script>").await;
    let id = put.json()["id"].as_str().unwrap().to_owned();
    let raw = [("accept", "application/octet-stream")];
    let got = server.send("GET", &format!("/v1/queues/q/messages/{id}"), &raw, b"").await;
    let taken = server.send("POST", "/v1/queues/q/take", &raw, b"").await;
    for answer in [got, taken] {
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/html")));
        assert_eq!(answer.header("content-security-policy"), Some("sandbox"), "{answer:?}");
        assert_eq!(answer.header("content-disposition"), Some("attachment"), "{answer:?}");
    }
    server.stop().await;
}
