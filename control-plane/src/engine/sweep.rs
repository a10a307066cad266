//! Reconcilers that take no input but the time: offers that nobody confirmed, leases that nobody renewed, rows past their
//! time, bytes that nobody names. Each may run at any moment and any number of times.

use super::{
    Engine,
    lease::{self, Hold, Loss},
    ms, offer, replay,
};
use checkfu_shared::problem::Problem;
use rusqlite::{Connection, OptionalExtension, params};

/// How long rows of no further use are kept for questions.
const HOUR_MS: i64 = 3_600_000;
/// How many rows one transaction works on.
const CHUNK: u32 = 100;
/// How far ahead of its term something may be without anybody wondering.
const SLACK_MS: i64 = 5_000;

impl Engine {
    /// Judges nobody by a clock that was moved. After a jump ahead, or a sleep of the machine, nobody could renew in between,
    /// as after a start: every live claim gets one full lease. After a jump back nothing waits longer than its whole term.
    /// `ahead_ms` is how much further the clock went than the time that passed.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn follow_clock(&self, ahead_ms: i64) -> Result<(), Problem> {
        if ahead_ms > SLACK_MS {
            tracing::warn!(ahead_ms, "the clock jumped ahead: every live claim gets one full lease");
            self.grant_full_leases().await?;
        }
        let (now, tempo) = (self.now().as_ms(), self.tempo());
        let (lease, offer) = (ms(tempo.lease_ms), ms(tempo.offer_ms));
        let read = move |conn: &Connection| {
            let sql = "select exists (select 1 from claims where state = 'live' and lease_until > ?1) \
                       or exists (select 1 from claims where state = 'offered' and offered_until > ?2) \
                       or exists (select 1 from runners where last_seen > ?3)";
            let latest = params![now + lease + SLACK_MS, now + offer + SLACK_MS, now + SLACK_MS];
            Ok(conn.prepare_cached(sql)?.query_row(latest, |row| row.get::<_, bool>(0))?)
        };
        if !self.store().read(read).await? {
            return Ok(());
        }
        tracing::warn!("the clock was set back: leases, offers and presence are counted anew from now");
        self.change(move |tx, cx| {
            let now = cx.now.as_ms();
            tx.execute(
                "update claims set lease_until = ?1 where state = 'live' and lease_until > ?1",
                [now + lease],
            )?;
            tx.execute(
                "update claims set offered_until = ?1 where state = 'offered' and offered_until > ?1",
                [now + offer],
            )?;
            tx.execute("update runners set last_seen = ?1 where last_seen > ?1", [now])?;
            Ok(())
        })
        .await
    }

    /// Offers that were not confirmed in time go back to the queue.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn expire_offers(&self) -> Result<(), Problem> {
        let now = self.now().as_ms();
        if !self
            .any("select exists (select 1 from claims where state = 'offered' and offered_until <= ?1)", now)
            .await?
        {
            return Ok(());
        }
        self.change(move |tx, cx| {
            let rest = "where state = 'offered' and offered_until <= ?1 limit ?2";
            for held in lease::select(tx, rest, &[&cx.now.as_ms(), &CHUNK])? {
                lease::take_back(tx, cx, &held)?;
            }
            Ok(())
        })
        .await
    }

    /// Claims whose lease ended `affinity_ms` ago are lost: their runs are offered to anybody.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub async fn lapse_leases(&self) -> Result<(), Problem> {
        let affinity = ms(self.tempo().affinity_ms);
        let before = self.now().as_ms().saturating_sub(affinity);
        if !self
            .any("select exists (select 1 from claims where state = 'live' and lease_until <= ?1)", before)
            .await?
        {
            return Ok(());
        }
        self.change(move |tx, cx| {
            let before = cx.now.as_ms().saturating_sub(affinity);
            let rest = "where state = 'live' and lease_until <= ?1 limit ?2";
            for held in lease::select(tx, rest, &[&before, &CHUNK])? {
                lease::lose(tx, cx, &held, Loss::Silent)?;
            }
            Ok(())
        })
        .await
    }

    /// Lets open polls look again while something waits: time alone may have made it theirs.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn nudge_polls(&self) -> Result<(), Problem> {
        if self.store().read(offer::anything_waits).await? {
            self.0.wakes.look_again();
        }
        Ok(())
    }

    /// Removes rows past their time.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn forget_old_rows(&self) -> Result<(), Problem> {
        self.change(|tx, cx| {
            let now = cx.now.as_ms();
            replay::sweep(tx, cx.now)?;
            tx.execute("delete from runner_tokens where expires_at <= ?1", [now])?;
            tx.execute("delete from pair_misses where at <= ?1", [now - HOUR_MS])?;
            tx.execute("delete from closed_instances where at <= ?1", [now - HOUR_MS])?;
            tx.execute(
                "delete from pairings where expires_at <= ?1 and id not in (select pairing_id from runners)",
                [now - 24 * HOUR_MS],
            )?;
            tx.execute(
                "delete from claims where state = ?1 and offered_until <= ?2",
                params![Hold::Returned.as_str(), now - 24 * HOUR_MS],
            )?;
            Ok(())
        })
        .await
    }

    /// Removes stored bytes that nobody names and staged bytes of settlements that are over.
    ///
    /// # Errors
    /// When the store cannot be used; a file that cannot be removed is tried again next time.
    pub async fn remove_garbage(&self) -> Result<(), Problem> {
        let names = self
            .store()
            .read(|conn| {
                let mut statement = conn.prepare_cached("select stored from garbage limit 100")?;
                let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            })
            .await?;
        let files = self.0.files.clone();
        let work = move || {
            let removed: Vec<String> = names.into_iter().filter(|name| files.remove(name).is_ok()).collect();
            (removed, files.staged_uploads().unwrap_or_default())
        };
        let Ok((removed, staged)) = tokio::task::spawn_blocking(work).await else { return Ok(()) };
        if !removed.is_empty() {
            self.change(move |tx, _| {
                for name in removed {
                    tx.execute("delete from garbage where stored = ?1", [name])?;
                }
                Ok(())
            })
            .await?;
        }
        let read = move |conn: &Connection| {
            let mut over = Vec::new();
            for upload in staged {
                let sql = "select 1 from uploads where id = ?1";
                let named = conn.query_row(sql, [upload.to_string()], |_| Ok(())).optional()?;
                over.extend(named.is_none().then_some(upload));
            }
            Ok(over)
        };
        let over = self.store().read(read).await?;
        let files = self.0.files.clone();
        let work = move || over.into_iter().filter(|upload| files.unstage(*upload).is_err()).count();
        if let Ok(left @ 1..) = tokio::task::spawn_blocking(work).await {
            tracing::warn!(left, "staged files could not be removed");
        }
        Ok(())
    }

    pub(super) async fn any(&self, sql: &'static str, at: i64) -> Result<bool, Problem> {
        Ok(self
            .store()
            .read(move |conn| Ok(conn.prepare_cached(sql)?.query_row([at], |row| row.get(0))?))
            .await?)
    }
}
