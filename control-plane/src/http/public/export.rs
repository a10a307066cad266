//! `GET /v1/sessions/{id}/export`: the whole log in a file that proves itself, read and sent page by page.

use super::sessions::own;
use crate::{
    domain::grant::{Kind::Session, Permission::Read},
    engine::EventQuery,
    export::{FORMAT, Head, VERSION, Writer},
    http::{
        Plane,
        auth::Caller,
        path::At,
        reply::{Answer, internal},
        route::{Guard, Routes},
    },
};
use axum::{
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::IntoResponse,
};
use checkfu_shared::{id::SessionId, problem::Problem};
use futures_util::stream;

/// How many events one read of the log brings.
const PAGE: u32 = 256;

/// The routes.
pub(crate) fn routes() -> Routes {
    Routes::new().get("/v1/sessions/{session}/export", Guard::named(Read, Session, "session"), export)
}

struct Exporter {
    plane: Plane,
    session: SessionId,
    last: u64,
    /// Gone once the seal is written.
    writer: Option<Writer>,
}

async fn export(State(plane): State<Plane>, caller: Caller, At(id): At<SessionId>) -> Answer {
    let session = own(&plane, &caller, id).await?;
    let head = Head {
        format: FORMAT.to_owned(),
        version: VERSION,
        session_id: id,
        workspace_id: caller.workspace_id,
        exported_at: plane.clock.now(),
        positions: session.last_seq,
    };
    let (writer, first) = Writer::begin(&head).map_err(|error| internal(&error))?;
    let exporter = Exporter { plane, session: id, last: session.last_seq, writer: Some(writer) };
    let rest = stream::unfold(exporter, |mut exporter| async {
        let bytes = exporter.next().await?;
        Some((bytes, exporter))
    });
    let first = stream::iter([Ok::<Bytes, Problem>(first.into())]);
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.{FORMAT}.jsonl\"")),
    ];
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    Ok((headers, body).into_response())
}

impl Exporter {
    /// The next page; a failure breaks the file off, which then has no seal.
    async fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        let writer = self.writer.take()?;
        Some(self.page(writer).await)
    }

    async fn page(&mut self, mut writer: Writer) -> Result<Bytes, Problem> {
        let from = writer.next_seq();
        if from > self.last {
            let engine = self.plane.engine.clone();
            let seal = writer.seal(|text| engine.sign_export(text));
            return Ok(seal.map_err(|error| internal(&error))?.into());
        }
        let query = EventQuery { after_seq: Some(from - 1), limit: PAGE, ..EventQuery::default() };
        let rows = self.plane.engine.events(self.session, query).await?;
        let upto = rows.last().map_or(self.last, |row| row.seq.min(self.last));
        let mut text = String::new();
        let mut rows = rows.into_iter().peekable();
        for seq in from..=upto {
            let row = rows.next_if(|row| row.seq == seq);
            let line = writer.position(row.as_ref().map(|row| row.json.as_str()));
            text.push_str(&line.map_err(|error| internal(&error))?);
        }
        self.writer = Some(writer);
        Ok(text.into())
    }
}
