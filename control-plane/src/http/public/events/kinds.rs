//! The event types that a list may be filtered by: the whole catalogue, what is not written yet included.

/// Sorted. `session.deleted` is not among them, since it is never stored.
const KINDS: [&str; 59] = [
    "action_approval.pending",
    "action_approval.resolved",
    "agent.custom_tool_use",
    "agent.mcp_tool_result",
    "agent.mcp_tool_use",
    "agent.message",
    "agent.thinking",
    "agent.thread_context_compacted",
    "agent.thread_message_received",
    "agent.thread_message_sent",
    "agent.tool_proposed",
    "agent.tool_result",
    "agent.tool_resumed",
    "agent.tool_use",
    "outcome.evaluation_completed",
    "outcome.evaluation_started",
    "run.claimed",
    "run.created",
    "run.settled",
    "run.suspended",
    "sandbox.created",
    "sandbox.egress_denied",
    "sandbox.lost",
    "sandbox.replaced",
    "sandbox.restarted",
    "session.error",
    "session.input_processed",
    "session.output_captured",
    "session.status_idle",
    "session.status_rescheduled",
    "session.status_running",
    "session.status_terminated",
    "session.thread_created",
    "session.thread_status_idle",
    "session.thread_status_rescheduled",
    "session.thread_status_running",
    "session.thread_status_terminated",
    "session.updated",
    "session.usage",
    "span.model_request_end",
    "span.model_request_start",
    "span.outcome_evaluation_end",
    "span.outcome_evaluation_ongoing",
    "span.outcome_evaluation_start",
    "stream.gap",
    "system.message",
    "user.custom_tool_result",
    "user.define_outcome",
    "user.interrupt",
    "user.message",
    "user.tool_confirmation",
    "user.tool_result",
    "workflow_run.created",
    "workflow_run.error",
    "workflow_run.phase_ended",
    "workflow_run.phase_started",
    "workflow_run.status_ended",
    "workflow_run.status_idle",
    "workflow_run.status_running",
];

/// Whether a list may be filtered by this type.
pub(crate) fn is_known(kind: &str) -> bool {
    KINDS.binary_search(&kind).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_sorted_and_has_no_stream_only_types() {
        assert!(KINDS.is_sorted());
        for kind in ["session.deleted", "event_start", "event_delta", "", "user"] {
            assert!(!is_known(kind), "{kind}");
        }
        assert!(is_known("user.message") && is_known("workflow_run.status_running"));
    }
}
