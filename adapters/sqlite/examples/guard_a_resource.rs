//! The half that a lease cannot do: the resource turns a late writer away.
//!
//! Two holders one after the other, and the first one writes late, as after a pause. The table compares and writes in one
//! statement, so the late write changes nothing.
//!
//! `cargo run -p leasehold-sqlite --example guard_a_resource`

use leasehold::{FencingToken, LeaseKey, LeaseOptions, Leases};
use leasehold_sqlite::SqliteStore;
use rusqlite::{Connection, params};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = SqliteStore::open(folder.path().join("leases.db")).await?;
    let leases = Leases::new(store, LeaseOptions::default())?;
    let key = LeaseKey::new("report")?;

    // The resource: a row with a fence beside its data. A BIGINT in databases that tell sizes apart.
    let resource = Connection::open(folder.path().join("reports.db"))?;
    resource.execute_batch(
        "CREATE TABLE report (id TEXT PRIMARY KEY, body TEXT NOT NULL, fence INTEGER NOT NULL);
         INSERT INTO report VALUES ('today', '', 0);",
    )?;

    let first = leases.acquire(&key).await?;
    let first_token = first.token();
    claim(&resource, first_token)?;
    write(&resource, first_token, "by the first holder")?;
    first.release().await?;

    let second = leases.acquire(&key).await?;
    // Claim before reading: from here on nothing that the first holder still has on its way can land.
    claim(&resource, second.token())?;
    write(&resource, second.token(), "by the second holder")?;

    match write(&resource, first_token, "by the first holder, late") {
        Err(error) => println!("the late write was refused: {error}"),
        Ok(()) => return Err("a stale write was taken".into()),
    }
    let body: String =
        resource.query_row("SELECT body FROM report WHERE id = 'today'", [], |row| row.get(0))?;
    println!("the report is {body}");
    assert_eq!(body, "by the second holder");
    second.release().await?;
    Ok(())
}

/// Advances the fence to a new holder's token, before it reads anything.
fn claim(resource: &Connection, token: FencingToken) -> Result<(), Box<dyn std::error::Error>> {
    let changed = resource.execute(
        "UPDATE report SET fence = ?1 WHERE id = 'today' AND fence <= ?1",
        params![token.as_i64()],
    )?;
    refuse_unless(changed, token)
}

/// Writes, and compares the fence in the same statement.
fn write(resource: &Connection, token: FencingToken, body: &str) -> Result<(), Box<dyn std::error::Error>> {
    let changed = resource.execute(
        "UPDATE report SET body = ?2, fence = ?1 WHERE id = 'today' AND fence <= ?1",
        params![token.as_i64(), body],
    )?;
    refuse_unless(changed, token)
}

fn refuse_unless(changed: usize, token: FencingToken) -> Result<(), Box<dyn std::error::Error>> {
    if changed == 1 {
        Ok(())
    } else {
        Err(format!("token {token} is stale: a newer holder has claimed the report").into())
    }
}
