//! What a working session is told from outside, gathered into the harness's orders.

use crate::{
    claim::{
        Stop,
        lease::{Loss, State},
    },
    harness::Orders,
};
use checkfu_shared::{id::ThreadId, protocol::renew::Directive};
use tokio::sync::{mpsc, watch};

/// Passes on directives and stops; ends with the reason when the session is cancelled.
pub(super) async fn listen(
    directives: &mut mpsc::Receiver<Directive>,
    stop: &mut watch::Receiver<Stop>,
    thread: ThreadId,
    orders: &watch::Sender<Orders>,
) -> String {
    let (mut hears_directives, mut hears_stop) = (true, true);
    let level = *stop.borrow_and_update();
    raise(orders, level);
    loop {
        tokio::select! {
            directive = directives.recv(), if hears_directives => match directive {
                Some(directive) => {
                    if let Some(reason) = obey(directive, thread, orders) {
                        return reason;
                    }
                }
                None => hears_directives = false,
            },
            changed = stop.changed(), if hears_stop => {
                hears_stop = changed.is_ok();
                let level = *stop.borrow_and_update();
                raise(orders, level);
            }
            else => std::future::pending().await,
        }
    }
}

fn raise(orders: &watch::Sender<Orders>, level: Stop) {
    orders.send_if_modified(|orders| {
        let grows = level > orders.stop;
        orders.stop = orders.stop.max(level);
        grows
    });
}

/// The reason, when the session is cancelled.
fn obey(directive: Directive, thread: ThreadId, orders: &watch::Sender<Orders>) -> Option<String> {
    match directive {
        Directive::Inputs { .. } => orders.send_modify(|orders| orders.inputs += 1),
        Directive::Interrupt { thread_id } if thread_id.is_none_or(|named| named == thread) => {
            orders.send_modify(|orders| {
                orders.is_interrupted = true;
                orders.inputs += 1;
            });
        }
        Directive::Interrupt { .. } => {}
        Directive::Cancel { reason } => return Some(reason),
    }
    None
}

/// Waits until the claim is lost.
pub(super) async fn lost(mut lease: watch::Receiver<State>) -> Loss {
    loop {
        if let State::Lost(loss) = *lease.borrow_and_update() {
            return loss;
        }
        if lease.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use checkfu_shared::id::EventId;

    #[tokio::test]
    async fn directives_and_stops_become_orders_until_the_session_is_cancelled() {
        let thread = ThreadId::from_bytes([1; 16]);
        let (send, mut directives) = mpsc::channel(8);
        let (level, mut stop) = watch::channel(Stop::Go);
        let (orders, seen) = watch::channel(Orders::default());
        let inputs = vec![EventId::from_bytes([2; 16])];
        send.send(Directive::Inputs { event_ids: inputs }).await.unwrap();
        send.send(Directive::Interrupt { thread_id: Some(ThreadId::from_bytes([9; 16])) }).await.unwrap();
        level.send(Stop::Drain).unwrap();
        let mut listening = Box::pin(listen(&mut directives, &mut stop, thread, &orders));
        let mut watched = seen.clone();
        tokio::select! {
            _ = &mut listening => panic!("nothing cancels"),
            reached = watched.wait_for(|orders| orders.inputs == 1 && orders.stop == Stop::Drain) => drop(reached.unwrap()),
        }
        assert!(!seen.borrow().is_interrupted, "another thread's interrupt is not ours");
        send.send(Directive::Interrupt { thread_id: None }).await.unwrap();
        send.send(Directive::Cancel { reason: "archived".into() }).await.unwrap();
        assert_eq!(listening.await, "archived");
        assert!(seen.borrow().is_interrupted);
    }
}
