"""Starts one whole installation for the SDK's tests: scripted model, control plane, paired runner, all real programs."""

import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

import anthropic
import pytest

BINARIES = pathlib.Path(os.environ["CHECKFU_TEST_BINARIES"])
PATIENCE_SECONDS = 90


def wait_for(what, look):
    """Looks until `look` finds something, and returns it."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"gave up waiting for {what}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Installation:
    """The programs and their directory."""

    def __init__(self, directory, with_runner=True):
        self.directory = directory
        self.programs = []
        self.model_url = self.start("scripted-model", ["--listen", "127.0.0.1:0"], ready="listening on ")
        self.url = f"http://127.0.0.1:{free_port()}"
        (directory / "model.key").write_text("provider-key")
        self.start(
            "checkfu",
            ["serve", "--listen", self.url.removeprefix("http://"), "--data-dir", directory / "plane",
             "--model-base-url", self.model_url, "--model-key-file", directory / "model.key"],
            ready="listening on ",
        )
        self.key = (directory / "plane" / "admin.key").read_text().strip()
        if not with_runner:
            return
        self.pair()
        self.start(
            "checkfu-runner",
            ["--state-dir", directory / "runner", "run", "--toolbox", os.environ["CHECKFU_TEST_TOOLBOX"],
             "--image", os.environ["CHECKFU_TEST_IMAGE"], "--max-sessions", "4"],
        )

    def start(self, name, arguments, ready=None):
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            program = subprocess.Popen([BINARIES / name, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT)
        self.programs.append(program)
        if ready is None:
            return None

        def line():
            assert program.poll() is None, f"{name} ended early:\n{log.read_text()}"
            found = [text for text in log.read_text().splitlines() if text.startswith(ready)]
            return found and found[0].removeprefix(ready).strip()

        return wait_for(f"{name} to be ready", line)

    def raw(self, method, path, body=None, headers=None):
        """A request as curl would make it; gives status, headers and JSON."""
        request = urllib.request.Request(self.url + path, method=method, headers=headers or {})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as reply:
                return reply.status, reply.headers, json.loads(reply.read())
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.headers, json.loads(refusal.read())

    def own(self, method, path, body=None):
        headers = {"authorization": f"Bearer {self.key}", "checkfu-version": "2026-08-29", "checkfu-beta": "managed-agents"}
        return self.raw(method, path, body, headers)[2]

    def pairing_code(self):
        principal = self.own("GET", "/v1/principals")["data"][0]["id"]
        return self.own("POST", "/v1/runner-pairings", {"principal": principal})["code"]

    def refusals(self):
        """What the scripted model refused."""
        with urllib.request.urlopen(f"{self.model_url}/_rig/refusals", timeout=PATIENCE_SECONDS) as reply:
            return json.loads(reply.read())["data"]

    def pair(self):
        code = self.pairing_code()
        subprocess.run([BINARIES / "checkfu-runner", "--state-dir", self.directory / "runner", "pair", "--plane", self.url],
                       input=code.encode(), check=True)

    def stop(self):
        for program in reversed(self.programs):
            program.terminate()
            try:
                program.wait(20)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
        for session in self.sessions:
            subprocess.run(f"docker ps -aq --filter label=checkfu.session={session} | xargs -r docker rm -f",
                           shell=True, stdout=subprocess.DEVNULL, check=False)

    sessions: list = []


@pytest.fixture(scope="session")
def installation(tmp_path_factory):
    installation = Installation(tmp_path_factory.mktemp("installation"))
    yield installation
    installation.stop()


@pytest.fixture(scope="session")
def beta(installation):
    return anthropic.Anthropic(api_key=installation.key, base_url=installation.url, max_retries=0).beta


@pytest.fixture(scope="session")
def agent(beta):
    return beta.agents.create(name="helper", model="scripted-1", system="Be brief.",
                              tools=[{"type": "agent_toolset_20260401"}])


@pytest.fixture(scope="session")
def environment(beta):
    return beta.environments.create(name="sdk", config={"type": "self_hosted"})


def script(*steps):
    return "script:" + json.dumps(steps)


def message(text):
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


@pytest.fixture
def start(installation, beta, agent, environment):
    """Makes a session that plays these steps."""

    def make(*steps, agent_id=None, **more):
        first = [message(script(*steps))] if steps else []
        session = beta.sessions.create(agent=agent_id or agent.id, environment_id=environment.id, initial_events=first, **more)
        installation.sessions.append(session.id)
        return session

    return make


@pytest.fixture
def idle(beta):
    """Waits until a session was idle `count` times; gives its events."""

    def wait(session_id, count=1):
        def look():
            events = list(beta.sessions.events.list(session_id))
            return sum(event.type == "session.status_idle" for event in events) >= count and events

        return wait_for("the session to be idle", look)

    return wait
