"""Real client programs through the model gateway, with nothing but a claim's capability: what they send and accept is not ours to choose."""

import json
import os
import pathlib
import subprocess

import pytest
from conftest import Installation, script
from stand_in import StandIn

CLAUDE = os.environ.get("CHECKFU_TEST_CLAUDE")


@pytest.fixture(params=["anthropic", "openai_compatible"])
def capability(request, tmp_path):
    """A control plane whose one session is held by a stand-in, and whose model is of a provider of this kind; gives where
    and with what the model may be asked."""
    plane = Installation(tmp_path, with_runner=False)
    stand_in = StandIn(plane)
    try:
        base_url = plane.model_url + ("/v1" if request.param == "openai_compatible" else "")
        provider = plane.own("POST", "/v1/providers", {"name": "p", "kind": request.param, "base_url": base_url,
                                                       "key": "provider-key", "allow_private": True})["id"]
        plane.own("POST", "/v1/model-routes", {"name": "routed", "candidates": [{"provider_id": provider, "model": "m"}]})
        agent = plane.own("POST", "/v1/agents", {"name": "a", "model": "routed"})["id"]
        environment = plane.own("POST", "/v1/environments", {"name": "e", "config": {"type": "self_hosted"}})["id"]
        first = {"type": "user.message", "content": [{"type": "text", "text": "hi"}]}
        plane.own("POST", "/v1/sessions", {"agent": agent, "environment_id": environment, "initial_events": [first]})
        yield plane, stand_in.hold()
    finally:
        stand_in.stop()
        plane.stop()


@pytest.mark.skipif(not CLAUDE, reason="NOT RUN: Claude Code could not be installed from npm")
def test_claude_code_completes_a_turn_with_a_tool(capability, tmp_path):
    plane, token = capability
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    # Nothing of this environment reaches the client, and the client reaches nothing but the gateway.
    environment = {
        "HOME": str(home), "PATH": os.environ["PATH"], "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": f"{plane.url}/v1/gateway", "ANTHROPIC_AUTH_TOKEN": token,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": "1", "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    }
    turn = script({"think": "A file is wanted.", "say": "I write it.", "tool": "Bash",
                   "input": {"command": "echo from-claude > made.txt && cat made.txt", "description": "Write a file"}},
                  {"expect": "from-claude", "say": "It is written."})
    ran = subprocess.run(
        [CLAUDE, "-p", "--output-format", "json", "--dangerously-skip-permissions", "--model", "anything",
         "--setting-sources", "", "--strict-mcp-config", turn],
        cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False)
    said = json.loads(ran.stdout)
    assert ran.returncode == 0 and said["is_error"] is False, ran.stdout + ran.stderr
    assert said["result"] == "It is written."
    assert pathlib.Path(work / "made.txt").read_text() == "from-claude\n"
    assert plane.refusals() == []
    # The provider's key was never anywhere near the client.
    assert "provider-key" not in ran.stdout + ran.stderr
