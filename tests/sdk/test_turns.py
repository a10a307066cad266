"""Whole turns through the official SDK: streams, tools, approvals, interrupts, files."""

import threading

import anthropic
import pytest
from conftest import message, script, wait_for


def text(event):
    return "".join(block.text for block in event.content if block.type == "text")


def test_a_turn_runs_a_tool_and_ends_idle_with_its_usage(beta, start, idle):
    session = start({"tool": "bash", "input": {"command": "echo hello; echo data > /mnt/session/outputs/out.txt"}}, {"say": "done"})
    events = idle(session.id)
    kinds = [event.type for event in events]
    assert kinds[-2:] == ["session.usage", "session.status_idle"]
    assert events[-1].stop_reason.type == "end_turn"
    result = next(event for event in events if event.type == "agent.tool_result")
    assert text(result).strip() == "hello"
    again = beta.sessions.retrieve(session.id)
    assert again.status == "idle" and again.usage.output_tokens > 0
    assert len(list(beta.sessions.threads.list(session.id))) == 1


def test_a_stream_opened_before_the_message_shows_the_whole_turn(beta, start, idle):
    session = start()
    seen = []
    with beta.sessions.events.stream(session.id) as stream:
        beta.sessions.events.send(session.id, events=[message(script({"say": "streamed"}))])
        for event in stream:
            seen.append(event)
            if event.type == "session.status_idle":
                break
    logged = {event.id: event.type for event in idle(session.id)}
    shown = {event.id: event.type for event in seen if getattr(event, "id", None)}
    assert shown == logged


def test_a_stream_killed_in_the_middle_and_the_history_together_miss_nothing(beta, start, idle):
    session = start({"tool": "bash", "input": {"command": "sleep 1; echo on"}}, {"say": "done"})
    seen = {}
    with beta.sessions.events.stream(session.id) as stream:
        for event in stream:
            if getattr(event, "id", None):
                seen[event.id] = event.type
                break
    logged = {event.id: event.type for event in idle(session.id)}
    assert seen.items() <= logged.items()
    assert list(logged.values()).count("session.status_idle") == 1


def test_an_empty_text_is_refused_and_the_session_goes_on(beta, start, idle):
    session = start({"say": "one"})
    idle(session.id)
    with pytest.raises(anthropic.BadRequestError):
        beta.sessions.events.send(session.id, events=[message("")])
    beta.sessions.events.send(session.id, events=[message(script({"say": "two"}))])
    events = idle(session.id, 2)
    assert [text(event) for event in events if event.type == "agent.message"] == ["one", "two"]


def test_an_interrupt_ends_a_long_turn_and_a_later_message_starts_a_new_one(beta, start, idle):
    session = start({"tool": "bash", "input": {"command": "sleep 600", "timeout_ms": 900000}}, {"say": "never"})
    wait_for("the call", lambda: any(event.type == "agent.tool_use" for event in beta.sessions.events.list(session.id)))
    with pytest.raises(anthropic.BadRequestError):
        beta.sessions.archive(session.id)
    beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
    assert idle(session.id)[-1].stop_reason.type == "end_turn"
    beta.sessions.events.send(session.id, events=[message(script({"say": "again"}))])
    events = idle(session.id, 2)
    assert text([event for event in events if event.type == "agent.message"][-1]) == "again"
    archived = beta.sessions.archive(session.id)
    assert archived.status == "terminated" and archived.archived_at
    with pytest.raises(anthropic.APIStatusError):
        beta.sessions.events.send(session.id, events=[message("more")])
    assert list(beta.sessions.events.list(session.id))


@pytest.mark.parametrize("answer", ["allow", "deny"])
def test_a_call_that_asks_waits_for_its_answer(beta, start, idle, answer):
    asking = {"type": "agent_toolset_20260401", "default_config": {"enabled": True, "permission_policy": {"type": "always_ask"}}}
    agent = beta.agents.create(name=f"asks-{answer}", model="scripted-1", tools=[asking])
    session = start({"tool": "bash", "input": {"command": "echo ran"}}, {"say": "done"}, agent_id=agent.id)
    events = idle(session.id)
    call = next(event for event in events if event.type == "agent.tool_use")
    assert call.evaluated_permission == "ask"
    assert events[-1].stop_reason.event_ids == [call.id]
    confirmation = {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": answer}
    if answer == "deny":
        confirmation["deny_message"] = "not today"
    beta.sessions.events.send(session.id, events=[confirmation])
    result = next(event for event in idle(session.id, 2) if event.type == "agent.tool_result")
    assert ("ran" in text(result)) == (answer == "allow")
    assert bool(result.is_error) == (answer == "deny")


def test_a_custom_tool_is_answered_by_the_application_and_an_unknown_call_is_refused(beta, start, idle):
    lookup = {"type": "custom", "name": "lookup", "description": "Looks it up.", "input_schema": {"type": "object"}}
    agent = beta.agents.create(name="custom", model="scripted-1", tools=[lookup])
    session = start({"tool": "lookup", "input": {}}, {"say": "thanks"}, agent_id=agent.id)
    call = next(event for event in idle(session.id) if event.type == "agent.custom_tool_use")
    with pytest.raises(anthropic.BadRequestError):
        beta.sessions.events.send(session.id, events=[{"type": "user.custom_tool_result", "custom_tool_use_id": "sevt_" + "0" * 32,
                                                       "content": [{"type": "text", "text": "x"}]}])
    beta.sessions.events.send(session.id, events=[{"type": "user.custom_tool_result", "custom_tool_use_id": call.id,
                                                   "content": [{"type": "text", "text": "found"}]}])
    assert idle(session.id, 2)[-1].stop_reason.type == "end_turn"


def test_several_sessions_at_once_keep_their_own_logs(start, idle):
    sessions = [start({"tool": "bash", "input": {"command": f"echo {n}"}}, {"say": f"said {n}"}) for n in range(4)]
    results = {}

    def follow(n):
        results[n] = idle(sessions[n].id)

    threads = [threading.Thread(target=follow, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, events in results.items():
        assert [text(event) for event in events if event.type == "agent.message"] == [f"said {n}"]


def test_files_are_found_by_their_session_and_downloaded_by_id(beta, start, idle):
    write = {"tool": "bash", "input": {"command": "printf 'some data' > /mnt/session/outputs/out.txt"}}
    session = start(write, {"say": "done"})
    idle(session.id)
    (file,) = beta.files.list(scope_id=session.id)
    assert (file.filename, file.size_bytes, file.mime_type) == ("out.txt", 9, "text/plain")
    assert file.scope.id == session.id and file.downloadable
    assert beta.files.retrieve_metadata(file.id).id == file.id
    assert beta.files.download(file.id).read() == b"some data"
