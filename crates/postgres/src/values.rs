//! Values that PostgreSQL has and Rust has under other names: ids as `uuid`, texts of JSON as `jsonb`.

use std::error::Error;

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

type Outcome<T> = Result<T, Box<dyn Error + Sync + Send>>;

/// 128 bits as a `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uuid(pub(crate) u128);

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Outcome<IsNull> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Outcome<Uuid> {
        Ok(Uuid(u128::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// JSON as `jsonb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Json(pub(crate) String);

/// The one version of its binary form.
const JSONB: u8 = 1;

impl ToSql for Json {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Outcome<IsNull> {
        out.put_u8(JSONB);
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Json {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Outcome<Json> {
        match raw.split_first() {
            Some((&JSONB, text)) => Ok(Json(std::str::from_utf8(text)?.to_owned())),
            _ => Err("a jsonb of another version".into()),
        }
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }
}
