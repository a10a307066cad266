//! The end of a claim: the manifest that names files, and the one transaction that makes files and terminal events visible.
//! A repeated settle gets its first answer, whatever happened since.

use super::{
    Caller, Cx, Engine, fenced,
    lease::{self, Held, Hold},
    ledger,
    log::{self, Loaded},
    reads,
};
use crate::{
    domain::settlement,
    files::{Files, path_key},
    record::{FileRecord, Status},
    store,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use checkfu_shared::{
    event::{CaptureStatus, OutputCaptured},
    id::{ClaimId, FileId, SessionId, SettlementId, UploadId},
    problem::{Code, Problem},
    protocol::{
        append::sha256_hex,
        claim::SettlementLimits,
        settlement::{
            ManifestFile, Settle, Settled, SettledFile, SettlementReply, SettlementRequest, Upload,
        },
    },
};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::HashMap;

impl Engine {
    /// Takes a manifest and says what has to be uploaded. The same manifest gets the same answer with newer offsets.
    ///
    /// # Errors
    /// [`Code::Fenced`], or [`Code::InvalidRequest`] for a manifest that breaks the limits.
    pub async fn settlement(
        &self,
        caller: Caller,
        id: ClaimId,
        request: SettlementRequest,
    ) -> Result<SettlementReply, Problem> {
        check_manifest(&request.files)?;
        let digest = sha256_hex(&serde_json::to_vec(&request.files).unwrap_or_default());
        self.change(move |tx, _| {
            let held = lease::fence(tx, &caller, id, request.epoch)?;
            if let Some(settlement_id) = known(tx, &held, &digest)? {
                return Ok(SettlementReply { settlement_id, uploads: missing(tx, settlement_id)? });
            }
            discard(tx, &held)?;
            let settlement_id = SettlementId::mint();
            tx.execute(
                "insert into settlements (id, claim, epoch, manifest_digest) values (?1, ?2, ?3, ?4)",
                params![settlement_id.to_string(), id.to_string(), held.epoch.cast_signed(), digest],
            )?;
            let session = log::load_key(tx, held.session)?.id;
            let kept = in_custody(tx, session)?;
            for file in request.files.iter().filter(|file| !kept.has(&file.path_b64, &file.sha256)) {
                tx.execute(
                    "insert into uploads (id, settlement, claim, file_key, path, size, sha256) \
                     values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    params![
                        UploadId::mint().to_string(),
                        settlement_id.to_string(),
                        id.to_string(),
                        file.key,
                        file.path_b64,
                        file.size.cast_signed(),
                        file.sha256
                    ],
                )?;
            }
            Ok(SettlementReply { settlement_id, uploads: missing(tx, settlement_id)? })
        })
        .await
    }

    /// Ends the claim: files become visible and the terminal events are logged, in one transaction.
    ///
    /// # Errors
    /// [`Code::Fenced`], [`Code::EventsGap`] when events are missing, [`Code::UploadMismatch`] when bytes are.
    pub async fn settle(&self, caller: Caller, id: ClaimId, request: Settle) -> Result<Settled, Problem> {
        let (session, settled) = self.change(move |tx, cx| settle(tx, cx, &caller, id, request)).await?;
        self.fanout().drop_previews(session);
        Ok(settled)
    }
}

fn check_manifest(files: &[ManifestFile]) -> Result<(), Problem> {
    let limits = SettlementLimits::default();
    let refused = |message: String| Err(Problem::new(Code::InvalidRequest, message));
    if files.len() as u64 > u64::from(limits.files) {
        return refused(format!("A settlement carries at most {} files.", limits.files));
    }
    if files.iter().map(|file| file.size).fold(0, u64::saturating_add) > limits.total_bytes {
        return refused(format!(
            "The files of a settlement have at most {} bytes in all.",
            limits.total_bytes
        ));
    }
    for file in files {
        if file.size > limits.file_bytes {
            return refused(format!("File `{}` has more than {} bytes.", file.key, limits.file_bytes));
        }
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if file.sha256.len() != 64 || !file.sha256.bytes().all(hex) {
            return refused(format!("`sha256` of file `{}` is not lowercase hexadecimal.", file.key));
        }
        raw_path(&file.path_b64)?;
    }
    let mut paths: Vec<&str> = files.iter().map(|file| file.path_b64.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    if paths.len() != files.len() {
        return refused("Two files of the settlement have the same path.".to_owned());
    }
    Ok(())
}

fn raw_path(path_b64: &str) -> Result<Vec<u8>, Problem> {
    BASE64_STANDARD
        .decode(path_b64)
        .ok()
        .filter(|raw| !raw.is_empty() && raw.len() <= 4_096)
        .ok_or_else(|| Problem::new(Code::InvalidRequest, "`path_b64` must be 1 to 4096 bytes in base64."))
}

fn known(tx: &Connection, held: &Held, digest: &str) -> Result<Option<SettlementId>, store::Error> {
    let sql = "select id from settlements where claim = ?1 and epoch = ?2 and manifest_digest = ?3";
    let id: Option<String> = tx
        .query_row(sql, params![held.id.to_string(), held.epoch.cast_signed(), digest], |row| row.get(0))
        .optional()?;
    id.as_deref().map(log::parsed).transpose()
}

/// A newer manifest takes the place of older ones; their bytes are left to the sweep.
fn discard(tx: &Connection, held: &Held) -> Result<(), store::Error> {
    let session = log::load_key(tx, held.session)?.id;
    let mut statement = tx.prepare_cached("select id from uploads where claim = ?1 and done = 1")?;
    let done = statement.query_map([held.id.to_string()], |row| row.get::<_, String>(0))?;
    for upload in done.collect::<Result<Vec<_>, _>>()? {
        discard_stored(tx, &Files::name(session, log::parsed(&upload)?))?;
    }
    tx.execute("delete from settlements where claim = ?1", [held.id.to_string()])?;
    Ok(())
}

fn discard_stored(tx: &Connection, stored: &str) -> Result<(), store::Error> {
    tx.execute("insert or ignore into garbage (stored) values (?1)", [stored])?;
    Ok(())
}

fn missing(tx: &Connection, settlement: SettlementId) -> Result<Vec<Upload>, store::Error> {
    let mut statement = tx.prepare_cached(
        "select file_key, id, durable from uploads where settlement = ?1 and done = 0 order by id",
    )?;
    let rows = statement.query_map([settlement.to_string()], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
    })?;
    rows.map(|row| {
        let (key, id, offset) = row?;
        Ok(Upload { key, upload_id: log::parsed(&id)?, offset: offset.cast_unsigned() })
    })
    .collect()
}

/// Bytes that a settlement may name, by path and digest.
struct Custody(HashMap<(String, String), String>);

impl Custody {
    fn has(&self, path_b64: &str, sha256: &str) -> bool {
        self.0.contains_key(&(path_b64.to_owned(), sha256.to_owned()))
    }

    fn stored(&self, path_b64: &str, sha256: &str) -> Option<&String> {
        self.0.get(&(path_b64.to_owned(), sha256.to_owned()))
    }
}

/// What the session has already.
fn in_custody(tx: &Connection, session: SessionId) -> Result<Custody, store::Error> {
    let files = reads::files(tx, session)?.into_iter();
    let kept = files.filter_map(|file| Some(((file.path_b64, file.sha256?), file.stored?)));
    Ok(Custody(kept.collect()))
}

fn settle(
    tx: &Connection,
    cx: &mut Cx,
    caller: &Caller,
    id: ClaimId,
    request: Settle,
) -> Result<(SessionId, Settled), store::Error> {
    // The first answer is owed to its claim even after the session went on, so it comes before the fence.
    let found = lease::select(tx, "where id = ?1", &[&id.to_string()])?.pop();
    let first = found.filter(|held| held.runner_id == caller.runner_id && held.epoch == request.epoch);
    if let Some(held) = &first
        && let Some(answer) = &held.settled
    {
        return Ok((log::load_key(tx, held.session)?.id, serde_json::from_str(answer)?));
    }
    let held = lease::fence(tx, caller, id, request.epoch)?;
    if request.events != held.next_index {
        return Err(Problem::new(
            Code::EventsGap,
            format!(
                "{} events of this claim are logged, not {}. Send the missing ones first.",
                held.next_index, request.events
            ),
        )
        .with("expected", held.next_index)
        .into());
    }
    let mut loaded = log::load_key(tx, held.session)?;
    let changed = show_files(tx, cx, &loaded, request.settlement_id, &request.files)?;
    let strays = ledger::strays(tx, &loaded)?;
    let ((), _, hint) = loaded.decide(tx, cx.now, |draft| {
        if let Some(strays) = strays {
            settlement::tell_strays(draft, strays.usage, strays.bill);
        }
        settlement::settle(draft, held.epoch, request.outcome, changed);
        Ok(())
    })?;
    cx.hints.push(hint);
    let state = &loaded.state;
    let stop_reason = state.stop_reason.clone().filter(|_| state.status == Status::Idle);
    let settled = Settled { stop_reason, last_seq: state.seq };
    close(tx, &held, &settled, request.keeps_sandbox)?;
    Ok((loaded.id, settled))
}

fn close(tx: &Connection, held: &Held, settled: &Settled, keeps_sandbox: bool) -> Result<(), store::Error> {
    let id = held.id.to_string();
    tx.execute(
        "update claims set state = ?2, settled = ?3 where id = ?1",
        params![id, Hold::Settled.as_str(), serde_json::to_string(settled)?],
    )?;
    tx.execute("delete from claim_events where claim = ?1", [&id])?;
    tx.execute("delete from settlements where claim = ?1", [&id])?;
    let home = keeps_sandbox.then(|| held.runner_id.to_string());
    tx.execute("update sessions set sandbox_runner = ?2 where key = ?1", params![held.session, home])?;
    Ok(())
}

/// Makes the files of a settlement visible; those that differ from what was visible, for the log.
fn show_files(
    tx: &Connection,
    cx: &Cx,
    loaded: &Loaded,
    settlement: Option<SettlementId>,
    files: &[SettledFile],
) -> Result<Vec<OutputCaptured>, store::Error> {
    let before: HashMap<String, FileRecord> =
        reads::files(tx, loaded.id)?.into_iter().map(|file| (file.path.clone(), file)).collect();
    let mut custody = in_custody(tx, loaded.id)?;
    uploaded(tx, loaded.id, settlement, &mut custody)?;
    let mut changed = Vec::new();
    for file in files {
        let path = path_key(&raw_path(&file.path_b64)?);
        let captured = file.status == CaptureStatus::Captured;
        let sha256 = file.sha256.clone().filter(|_| captured);
        let stored = sha256.as_ref().and_then(|sha256| custody.stored(&file.path_b64, sha256)).cloned();
        if captured && stored.is_none() {
            return Err(Problem::new(
                Code::UploadMismatch,
                format!("The bytes of `{path}` are not in custody. Announce them in a settlement and upload them first."),
            )
            .with("path", path)
            .into());
        }
        let known = before.get(&path);
        if known.is_some_and(|known| {
            known.status == file.status && known.sha256 == sha256 && known.size_bytes == file.size
        }) {
            continue;
        }
        if let Some(old) =
            known.and_then(|known| known.stored.as_ref()).filter(|old| Some(*old) != stored.as_ref())
        {
            discard_stored(tx, old)?;
        }
        put_file(tx, cx, loaded.key, &path, file, sha256.as_deref(), stored.as_deref())?;
        changed.push(OutputCaptured { path, status: file.status, size_bytes: file.size, sha256 });
    }
    Ok(changed)
}

/// Adds the finished uploads of this settlement.
fn uploaded(
    tx: &Connection,
    session: SessionId,
    settlement: Option<SettlementId>,
    custody: &mut Custody,
) -> Result<(), store::Error> {
    let Some(settlement) = settlement else { return Ok(()) };
    let mut statement =
        tx.prepare_cached("select id, path, sha256 from uploads where settlement = ?1 and done = 1")?;
    let rows = statement.query_map([settlement.to_string()], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    })?;
    for row in rows {
        let (id, path, sha256) = row?;
        custody.0.insert((path, sha256), Files::name(session, log::parsed(&id)?));
    }
    Ok(())
}

fn put_file(
    tx: &Connection,
    cx: &Cx,
    session: i64,
    path: &str,
    file: &SettledFile,
    sha256: Option<&str>,
    stored: Option<&str>,
) -> Result<(), store::Error> {
    let status = serde_json::to_value(file.status)?;
    tx.execute(
        "insert into files (session, path, id, path_b64, status, size, sha256, stored, captured_at) \
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) on conflict (session, path) do update set id = excluded.id, \
         status = excluded.status, size = excluded.size, sha256 = excluded.sha256, stored = excluded.stored, \
         captured_at = excluded.captured_at",
        params![
            session,
            path,
            FileId::mint().to_string(),
            file.path_b64,
            status.as_str(),
            file.size.cast_signed(),
            sha256,
            stored,
            cx.now.as_ms()
        ],
    )?;
    Ok(())
}

/// The upload's claim is still its caller's.
pub(super) fn fence_upload(
    conn: &Connection,
    caller: &Caller,
    upload: UploadId,
    epoch: u64,
) -> Result<(SessionId, u64, u64, String, bool), store::Error> {
    let sql = "select claim, size, durable, sha256, done from uploads where id = ?1";
    let row: Option<(String, i64, i64, String, bool)> = conn
        .query_row(sql, [upload.to_string()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })
        .optional()?;
    let Some((claim, size, durable, sha256, done)) = row else { return Err(fenced().into()) };
    let held = lease::fence(conn, caller, log::parsed(&claim)?, epoch)?;
    let session = log::load_key(conn, held.session)?.id;
    Ok((session, size.cast_unsigned(), durable.cast_unsigned(), sha256, done))
}
