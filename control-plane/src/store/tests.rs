//! The store's promises over a real file: groups, refusals of one job, what a reopened file holds.

use super::*;

fn opened(dir: &tempfile::TempDir) -> Store {
    Store::open(&dir.path().join("t.db")).unwrap()
}

async fn put(store: &Store, text: &'static str) -> Result<(), Error> {
    store
        .write(move |tx| {
            tx.execute("insert into garbage (stored) values (?1)", [text])?;
            if text == "panics" {
                panic!("as the test asks");
            }
            if text == "refused" {
                return Err(Problem::new(Code::Conflict, "No.").into());
            }
            Ok(())
        })
        .await
}

async fn count(store: &Store) -> u64 {
    store
        .read(|c| Ok(c.query_row("select count(*) from garbage", [], |row| row.get::<_, i64>(0))?))
        .await
        .unwrap()
        .cast_unsigned()
}

#[tokio::test]
async fn a_refused_or_panicking_job_leaves_its_neighbours_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(&dir);
    let texts = ["a", "refused", "b", "panics", "a", "c"];
    let outcomes = futures_util::future::join_all(texts.map(|text| put(&store, text))).await;
    let ok: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true, false, false, true]);
    assert_eq!(count(&store).await, 3);
}

#[tokio::test]
async fn what_was_answered_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(&dir);
    put(&store, "kept").await.unwrap();
    store.close();
    assert!(matches!(put(&store, "late").await, Err(Error::Closed)));
    assert_eq!(count(&opened(&dir)).await, 1);
}

#[tokio::test]
async fn after_a_failed_commit_nobody_is_told_of_success() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(&dir);
    store.set_fate(Fate::Fail);
    assert!(matches!(put(&store, "lost").await, Err(Error::Commit)));
    assert!(matches!(put(&store, "later").await, Err(Error::Commit)));
    assert!(store.failed());
    assert_eq!(count(&opened(&dir)).await, 0);
}

#[tokio::test]
async fn a_hint_runs_only_after_the_commit_and_even_if_nobody_waits() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(&dir);
    let (tell, told) = tokio::sync::oneshot::channel();
    let job = store.write_then(
        |tx| {
            tx.execute("insert into garbage (stored) values ('x')", [])?;
            Ok(((), ()))
        },
        move |()| tell.send(()).unwrap(),
    );
    let mut job = Box::pin(job);
    assert!(futures_util::poll!(&mut job).is_pending());
    drop(job);
    told.await.unwrap();
    assert_eq!(count(&store).await, 1);
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(opened(&dir));
    let raw = Connection::open(dir.path().join("t.db")).unwrap();
    raw.pragma_update(None, "user_version", 999).unwrap();
    drop(raw);
    assert!(matches!(Store::open(&dir.path().join("t.db")), Err(Error::Newer { found: 999, .. })));
}

#[tokio::test]
async fn a_store_without_threads_keeps_the_same_promises() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = Store::open_here(&path).unwrap();
    let texts = ["a", "refused", "b", "panics", "a", "c"];
    let outcomes = futures_util::future::join_all(texts.map(|text| put(&store, text))).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 3);
    assert_eq!(count(&store).await, 3);
    store.set_fate(Fate::Fail);
    assert!(matches!(put(&store, "lost").await, Err(Error::Commit)));
    assert!(matches!(put(&store, "later").await, Err(Error::Commit)));
    store.close();
    assert_eq!(count(&Store::open_here(&path).unwrap()).await, 3);
}

/// Limits the database to its present size and some pages more; zero takes the limit away.
async fn limit(store: &Store, pages: i64) {
    let set = move |tx: &Transaction<'_>| {
        let now: i64 = tx.query_row("pragma page_count", [], |row| row.get(0))?;
        let most = if pages == 0 { i64::from(u32::MAX - 1) } else { now + pages };
        tx.query_row(&format!("pragma max_page_count = {most}"), [], |_| Ok(()))?;
        Ok(())
    };
    store.write(set).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_refuses_what_does_not_fit_and_the_store_goes_on_with_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(&dir);
    limit(&store, 2).await;
    let large = |store: &Store| {
        let store = store.clone();
        async move {
            let job = |tx: &Transaction<'_>| {
                tx.execute("insert into garbage (stored) values (hex(zeroblob(300000)) || random())", [])?;
                Ok(())
            };
            store.write(job).await
        }
    };
    for _ in 0..3 {
        assert!(matches!(large(&store).await, Err(Error::Full)));
    }
    // One batch of small and large: each either is there or was refused.
    let (a, b, c) = tokio::join!(put(&store, "small"), large(&store), put(&store, "other"));
    let kept = [a.is_ok(), c.is_ok()].iter().filter(|ok| **ok).count() as u64;
    assert!(matches!(b, Err(Error::Full)));
    assert_eq!(count(&store).await, kept);
    assert!(!store.failed());
    limit(&store, 0).await;
    large(&store).await.unwrap();
    store.close();
    assert_eq!(count(&opened(&dir)).await, kept + 1);
}

#[tokio::test]
async fn a_closed_store_leaves_its_file_whole_without_the_write_ahead_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = opened(&dir);
    put(&store, "kept").await.unwrap();
    store.close();
    assert_eq!(std::fs::metadata(dir.path().join("t.db-wal")).map_or(0, |found| found.len()), 0);
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(dir.path().join("t.db"), copy.path().join("t.db")).unwrap();
    assert_eq!(count(&opened(&copy)).await, 1);
}
