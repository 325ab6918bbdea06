//! Migration, rights and removal of a schema, on a real server.

mod support;

use dwell_model::{Limits, QueueName};
use dwell_postgres::{Administration, Grant, OpenError, PostgresStore};
use dwell_store::{Action, Put, Settle, Store as _, Take};
use dwell_testkit::within;

use support::{RUNTIME, address, connect, database, installed, run};

fn orders() -> QueueName {
    "orders".parse().expect("it is a name")
}

fn put(body: &'static str) -> Put {
    Put::new(orders(), body)
}

/// The URL with another user.
fn as_role(url: &str, role: &str) -> String {
    url.replace("postgres@", &format!("{role}@"))
}

async fn administer(url: &str) -> Administration {
    within("a connection", Administration::connect(address(url))).await.expect("it can be made")
}

async fn open(url: &str) -> Result<PostgresStore, OpenError> {
    within("an opening", PostgresStore::open(address(url), Limits::default())).await
}

async fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(client: &tokio_postgres::Client, sql: &str) -> T {
    client.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
}

#[test]
fn a_migration_installs_then_replaces_functions_and_keeps_messages_and_rights() {
    RUNTIME.block_on(async {
        let url = database(None).await;
        let (administration, client) = (administer(&url).await, connect(&url).await);
        let migrated = administration.migrate().await.expect("there is none yet");
        assert_eq!((migrated.from, migrated.to), (None, 1));
        let store = open(&url).await.expect("it is installed");
        assert!(store.put(vec![put("kept")]).await[0].is_ok());
        run(&client, "CREATE ROLE kept_role LOGIN").await;
        administration.grant("kept_role", Grant::Calls(&["put"])).await.expect("it exists");
        // As if an earlier version had installed it: a function is missing, and another does something else.
        run(&client, "DROP FUNCTION dwell.purge_1; DROP FUNCTION dwell.leased_1").await;
        run(
            &client,
            "CREATE OR REPLACE FUNCTION dwell.clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT 7::bigint'",
        )
        .await;
        let refused = open(&url).await.err().expect("a function is missing");
        assert_eq!(refused.code(), "foreign_data");
        assert!(refused.to_string().contains("dwell postgres migrate"), "{refused}");
        let migrated = administration.migrate().await.expect("it is ours");
        assert_eq!((migrated.from, migrated.to), (Some(1), 1));
        let again = open(&url).await.expect("it is whole again");
        assert_eq!(again.take(Take::from(orders())).await.expect("it is due").len(), 1);
        // The store that was open meanwhile goes on.
        assert!(store.put(vec![put("later")]).await[0].is_ok());
        let caller = connect(&as_role(&url, "kept_role")).await;
        run(&caller, "SELECT dwell.put('orders', 'by a caller')").await;
    });
}

#[test]
fn what_is_not_ours_is_not_migrated() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (administration, client) = (administer(&url).await, connect(&url).await);
        run(&client, "CREATE SCHEMA theirs; CREATE TABLE theirs.layout (x int)").await;
        let theirs = Administration::connect(format!("{url}?schema=theirs").parse().expect("it is a URL"));
        let theirs = theirs.await.expect("it can be reached");
        assert_eq!(theirs.migrate().await.expect_err("it is theirs").code(), "foreign_data");
        assert_eq!(theirs.drop_schema().await.expect_err("it is theirs").code(), "foreign_data");
        run(&client, "UPDATE dwell.layout SET version = 99; DROP FUNCTION dwell.purge_1").await;
        assert_eq!(administration.migrate().await.expect_err("it is newer").code(), "newer_format");
        let there: bool = one(&client, "SELECT to_regproc('dwell.purge_1') IS NOT NULL").await;
        assert!(!there, "nothing was changed");
        run(&client, "UPDATE dwell.layout SET version = 0").await;
        assert_eq!(administration.migrate().await.expect_err("there never was one").code(), "foreign_data");
    });
}

#[test]
fn only_the_owner_and_its_members_migrate_and_what_they_create_is_the_owners() {
    RUNTIME.block_on(async {
        let url = database(None).await;
        let client = connect(&url).await;
        run(&client, "CREATE ROLE shop_owner LOGIN; CREATE ROLE stranger LOGIN; CREATE ROLE member LOGIN IN ROLE shop_owner")
            .await;
        let name: String = one(&client, "SELECT current_database()::text").await;
        run(&client, &format!("GRANT CREATE ON DATABASE {name} TO shop_owner")).await;
        let refused = administer(&as_role(&url, "stranger")).await.migrate().await;
        assert_eq!(refused.expect_err("it may not create").code(), "not_granted");
        administer(&as_role(&url, "shop_owner")).await.migrate().await.expect("it may create");
        let stranger = administer(&as_role(&url, "stranger")).await;
        for error in [
            stranger.migrate().await.err(),
            stranger.grant("stranger", Grant::Store).await.err(),
            stranger.contents().await.err(),
            stranger.drop_schema().await.err(),
        ] {
            let error = error.expect("it is not the owner");
            assert_eq!(error.code(), "not_granted");
            assert!(error.to_string().contains("shop_owner"), "{error}");
        }
        run(&client, "DROP FUNCTION dwell.purge_1; DROP FUNCTION dwell.put_many").await;
        administer(&as_role(&url, "member")).await.migrate().await.expect("it is a member");
        run(&client, "DROP FUNCTION dwell.purge_1; DROP FUNCTION dwell.peek_7(bigint, uuid, uuid)").await;
        administer(&url).await.migrate().await.expect("a superuser is a member of all");
        let others: i64 = one(
            &client,
            "SELECT count(*) FROM pg_proc WHERE pronamespace = 'dwell'::regnamespace AND proowner <> 'shop_owner'::regrole",
        )
        .await;
        assert_eq!(others, 0, "all functions are the owner's");
        assert!(open(&as_role(&url, "shop_owner")).await.is_ok());
    });
}

#[test]
fn a_caller_may_call_what_it_was_granted_and_nothing_else() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (administration, client) = (administer(&url).await, connect(&url).await);
        run(&client, "CREATE ROLE producer LOGIN; CREATE ROLE \"odd \"\"role\" LOGIN").await;
        let granted = administration.grant("producer", Grant::Calls(&["put", "cancel"])).await;
        assert_eq!(granted.expect("it exists"), ["cancel", "put"]);
        assert!(administration.grant("odd \"role", Grant::Calls(&["put"])).await.is_ok());
        let producer = connect(&as_role(&url, "producer")).await;
        run(&producer, "SELECT dwell.put('orders', 'text'), dwell.put('orders', '\\x00'::bytea, key => 'k')")
            .await;
        run(&producer, "SELECT dwell.cancel('orders', key => 'k')").await;
        for sql in [
            "SELECT dwell.reschedule('orders', key => 'k')",
            "SELECT * FROM dwell.maintain_1(NULL)",
            "SELECT * FROM dwell.body",
            "SELECT * FROM dwell.put_one('orders', 0, NULL, 'b', NULL, NULL, NULL, NULL, NULL)",
            "CREATE TABLE dwell.mine ()",
        ] {
            let error = producer.batch_execute(sql).await.expect_err(sql);
            assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{sql}");
        }
        let refused = open(&as_role(&url, "producer")).await.err().expect("it is no server");
        assert_eq!(refused.code(), "not_granted");
        for (role, grant, code) in [
            ("no_role", Grant::Store, "unknown_role"),
            ("public", Grant::Store, "unknown_role"),
            ("", Grant::Store, "unknown_role"),
            ("a\0b", Grant::Store, "unknown_role"),
            ("producer", Grant::Calls(&["put", "maintain_1"]), "unknown_function"),
        ] {
            let refused = administration.grant(role, grant).await;
            assert_eq!(refused.expect_err("it is refused").code(), code, "{role:?}");
        }
    });
}

#[test]
fn a_role_for_servers_owns_nothing_and_serves() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (administration, client) = (administer(&url).await, connect(&url).await);
        run(&client, "CREATE ROLE serving LOGIN").await;
        let granted = administration.grant("serving", Grant::Store).await.expect("it exists");
        assert!(granted.contains(&"put_1".to_owned()) && !granted.contains(&"put".to_owned()), "{granted:?}");
        let as_serving = as_role(&url, "serving");
        let store = open(&as_serving).await.expect("that is all it needs");
        store.publish_defaults().await.expect("it may");
        assert!(store.put(vec![put("a"), put("b")]).await.iter().all(Result::is_ok));
        let taken = store.take(Take::from(orders()).session()).await.expect("it is due");
        let settle = Settle { receipt: taken[0].receipt.clone(), action: Action::Ack };
        assert!(store.settle(vec![settle]).await[0].is_ok());
        assert_eq!(store.stats(orders()).await.expect("it is there").counts.ready, 1);
        assert_eq!(store.purge(orders()).await, Ok(1));
        assert!(store.leave().await, "its session ends in order");
        let direct = connect(&as_serving).await;
        let refused = direct.batch_execute("SELECT * FROM dwell.body").await;
        assert_eq!(refused.expect_err("it has no table").code().map(|code| code.code()), Some("42501"));
    });
}

#[test]
fn a_schema_is_dropped_whole_or_not_at_all() {
    RUNTIME.block_on(async {
        let url = installed().await;
        let (administration, client) = (administer(&url).await, connect(&url).await);
        let store = open(&url).await.expect("it is installed");
        assert!(store.put(vec![put("a"), put("b")]).await.iter().all(Result::is_ok));
        store.take(Take::from(orders())).await.expect("one is due");
        let contents = administration.contents().await.expect("we own it");
        assert_eq!((contents.queues, contents.pending, contents.leased, contents.dead), (1, 1, 1, 0));
        run(&client, "CREATE VIEW public.names AS SELECT name FROM dwell.queue").await;
        let refused = administration.drop_schema().await.expect_err("a view depends on it");
        assert_eq!(refused.code(), "foreign_data");
        assert!(refused.to_string().contains("names"), "{refused}");
        run(&client, "DROP VIEW public.names; CREATE TABLE dwell.theirs (x int)").await;
        let refused = administration.drop_schema().await.expect_err("there is a table of somebody's");
        assert!(refused.to_string().contains("theirs"), "{refused}");
        run(&client, "DROP TABLE dwell.theirs; BEGIN; SELECT dwell.put('orders', 'open')").await;
        let busy = administration.drop_schema().await.expect_err("a put is open");
        assert_eq!((busy.code(), busy.is_retryable()), ("busy", true), "{busy}");
        run(&client, "COMMIT").await;
        assert_eq!(store.stats(orders()).await.expect("all is there").counts.ready, 2);
        assert!(store.leave().await);
        administration.drop_schema().await.expect("nothing is in its way");
        let left: i64 = one(&client, "SELECT count(*) FROM pg_namespace WHERE nspname = 'dwell'").await;
        assert_eq!(left, 0);
        for error in [
            administration.contents().await.err(),
            administration.drop_schema().await.err(),
            administration.grant("postgres", Grant::Store).await.err(),
        ] {
            assert_eq!(error.expect("there is none").code(), "not_installed");
        }
        let migrated = administration.migrate().await.expect("it can be installed again");
        assert_eq!(migrated.from, None);
    });
}
