"""Agents, environments and sessions through the official SDK: what is accepted, what is refused, and how."""

import re

import anthropic
import pytest


def test_the_key_works_as_bearer_and_as_x_api_key(installation, agent):
    for header in ({"authorization": f"Bearer {installation.key}"}, {"x-api-key": installation.key}):
        for version in ("2026-10-21", "2023-06-01"):
            status, headers, body = installation.raw("GET", f"/v1/agents/{agent.id}?beta=true", headers={**header, "anthropic-version": version})
            assert status == 200 and body["id"] == agent.id
            assert headers["request-id"]


def test_an_unknown_session_is_not_found(beta):
    for unknown in ("sesn_nope", "sess_" + "0" * 32):
        with pytest.raises(anthropic.NotFoundError) as refusal:
            beta.sessions.retrieve(unknown)
        assert refusal.value.type == "not_found_error"
        assert refusal.value.request_id


def test_a_wrong_key_is_refused(installation):
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(api_key="ck_wrong", base_url=installation.url, max_retries=0).beta.agents.list()


def test_an_agent_is_updated_by_compare_and_set_and_old_versions_stay(beta):
    agent = beta.agents.create(name="one", model="scripted-1", metadata={"a": "1"})
    assert agent.version == 1
    updated = beta.agents.update(agent.id, version=1, name="two")
    assert (updated.version, updated.name) == (2, "two")
    with pytest.raises(anthropic.ConflictError):
        beta.agents.update(agent.id, version=1, name="three")
    assert beta.agents.retrieve(agent.id, version=1).name == "one"
    patched = beta.agents.update(agent.id, version=2, metadata={"a": None, "b": "2"})
    assert patched.metadata == {"b": "2"}
    assert {version.version for version in beta.agents.versions.list(agent.id)} == {1, 2, 3}
    assert beta.agents.archive(agent.id).archived_at


@pytest.mark.parametrize("tool", [
    {"type": "custom", "name": "bash", "description": "d", "input_schema": {"type": "object"}},
    {"type": "custom", "name": "mcp__x", "description": "d", "input_schema": {"type": "object"}},
    {"type": "custom", "name": "ref", "description": "d", "input_schema": {"type": "object", "properties": {"a": {"$ref": "#"}}}},
])
def test_custom_tools_that_would_mislead_are_refused(beta, tool):
    with pytest.raises(anthropic.BadRequestError):
        beta.agents.create(name="bad", model="scripted-1", tools=[tool])


def test_an_environment_never_changes_its_kind_and_can_be_deleted(beta):
    environment = beta.environments.create(name="kind", config={"type": "self_hosted"})
    with pytest.raises(anthropic.BadRequestError) as refusal:
        beta.environments.update(environment.id, config={"type": "cloud", "networking": {"type": "unrestricted"}})
    assert refusal.value.body["error"]["details"]["error_code"] == "invalid_config_type_change"
    assert beta.environments.delete(environment.id).type == "environment_deleted"
    with pytest.raises(anthropic.NotFoundError):
        beta.environments.retrieve(environment.id)


def test_a_session_is_listed_titled_and_keeps_its_snapshot_of_the_agent(beta, environment, start):
    agent = beta.agents.create(name="before", model="scripted-1")
    session = start(agent_id=agent.id, title="first", metadata={"k": "v"})
    assert re.fullmatch("sess_[0-9a-f]{32}", session.id) and session.status == "idle"
    beta.agents.update(agent.id, version=1, name="after")
    assert beta.sessions.update(session.id, title="second").title == "second"
    again = beta.sessions.retrieve(session.id)
    assert (again.agent.name, again.title, again.metadata) == ("before", "second", {"k": "v"})
    assert session.id in {found.id for found in beta.sessions.list(limit=2)}
    with pytest.raises(anthropic.BadRequestError):
        beta.sessions.update(session.id, metadata={f"k{n}": "v" for n in range(17)})
    assert beta.sessions.delete(session.id)
    with pytest.raises(anthropic.NotFoundError):
        beta.sessions.retrieve(session.id)


@pytest.mark.parametrize("bad", [
    [{"type": "user.message", "content": [{"type": "text", "text": "ok"}]}, {"type": "user.message", "content": [{"type": "text", "text": ""}]}],
    [{"type": "user.interrupt"}],
    [{"type": "user.message", "content": [{"type": "text", "text": "ok"}]}] * 51,
])
def test_a_bad_initial_event_creates_no_session(beta, agent, environment, bad):
    before = {session.id for session in beta.sessions.list()}
    with pytest.raises(anthropic.BadRequestError):
        beta.sessions.create(agent=agent.id, environment_id=environment.id, initial_events=bad)
    assert {session.id for session in beta.sessions.list()} == before
