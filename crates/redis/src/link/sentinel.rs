//! Asking Sentinels for the primary.

use std::sync::atomic::Ordering;

use redis::{AsyncConnectionConfig, ErrorKind, RedisError, RedisResult};

use super::Inner;
use crate::Address;
use crate::address::Node;

/// The primary, by the first Sentinel that knows it.
///
/// It is checked by asking the server for its role, since a Sentinel may lag behind. A Sentinel that does not answer
/// does not hold up the others: each has its share of the time, and the next search begins behind it.
///
/// <https://redis.io/docs/latest/develop/reference/sentinel-clients/>
pub(super) async fn primary(inner: &Inner, config: &AsyncConnectionConfig) -> RedisResult<Node> {
    let address = &inner.address;
    let service = address.service.as_deref().unwrap_or_default();
    let login = Address {
        user: address.sentinel_user.clone(),
        password: address.sentinel_password.clone(),
        db: 0,
        ..address.clone()
    };
    let mut last = None;
    let count = address.nodes.len().max(1);
    let limit = address.timeout() / u32::try_from(count.min(4)).unwrap_or(1);
    let first = inner.sentinel.load(Ordering::Relaxed) % count;
    for index in 0..address.nodes.len() {
        let place = (first + index) % count;
        let asked = async {
            let node = named_by(inner, &login, &address.nodes[place], service, config).await?;
            Ok((is_primary(inner, &node, config).await?, node))
        };
        match tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Err(super::nobody())) {
            Ok((true, node)) => return Ok(node),
            Ok((false, _)) => last = Some(RedisError::from((ErrorKind::Io, "the primary is being replaced"))),
            Err(error) => last = Some(error),
        }
        inner.sentinel.store(place + 1, Ordering::Relaxed);
    }
    Err(last.unwrap_or_else(super::nobody))
}

async fn named_by(
    inner: &Inner,
    login: &Address,
    sentinel: &Node,
    service: &str,
    config: &AsyncConnectionConfig,
) -> RedisResult<Node> {
    let client = inner.client_with(login, sentinel)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
    let mut ask = redis::cmd("SENTINEL");
    let named: Option<(String, u16)> =
        ask.arg("get-master-addr-by-name").arg(service).query_async(&mut connection).await?;
    let unknown =
        || RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "the service is unknown there"));
    named.map(|(host, port)| Node::Tcp(host, port)).ok_or_else(unknown)
}

async fn is_primary(inner: &Inner, node: &Node, config: &AsyncConnectionConfig) -> RedisResult<bool> {
    let client = inner.client(node)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
    let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
    let is_master =
        |value: &redis::Value| matches!(value, redis::Value::BulkString(name) if name == b"master");
    Ok(role.first().is_some_and(is_master))
}
