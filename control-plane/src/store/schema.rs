//! The schema's versions in order. A migration that was ever released is never edited; a new one is added.

use super::Error;
use rusqlite::Connection;

const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_log.sql"),
    include_str!("migrations/0002_registry.sql"),
    include_str!("migrations/0003_disposals.sql"),
    include_str!("migrations/0004_governance.sql"),
    include_str!("migrations/0005_approvals.sql"),
    include_str!("migrations/0006_deployments.sql"),
    include_str!("migrations/0007_models.sql"),
];

/// Brings the database up to date; each migration is one transaction.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    if found > known {
        return Err(Error::Newer { found, known });
    }
    for (version, sql) in (1u32..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        let tx = connection.transaction()?;
        tx.execute_batch(sql)?;
        tx.pragma_update(None, "user_version", version)?;
        tx.commit()?;
    }
    Ok(())
}
