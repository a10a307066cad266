"""Holds a session's claim as a runner does, without a sandbox: so that a client may be run by hand with its capability."""

import base64
import json
import subprocess
import threading
import urllib.request
import uuid


class StandIn:
    """One paired identity; its claim is renewed until it stops."""

    def __init__(self, installation):
        self.installation = installation
        self.url = installation.url
        self.instance = f"inst_{uuid.uuid4().hex}"
        self.key = installation.directory / "stand-in.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", self.key], check=True)
        public = subprocess.run(["openssl", "pkey", "-in", self.key, "-pubout", "-outform", "DER"],
                                check=True, capture_output=True).stdout
        # The last 32 bytes of the DER form are the key itself.
        public = base64.b64encode(public[-32:]).decode()
        self.id = self.call("pair", {"code": installation.pairing_code(), "public_key": public, "name": "stand-in",
                                     **self.signed("pair", public)})["runner_id"]
        said = self.call("token", {"runner_id": self.id, **self.signed("token", self.id)})
        self.bearer = {"authorization": f"Bearer {said['token']}"}
        self.over = threading.Event()
        self.keeper = None

    def signed(self, purpose, subject):
        nonce = self.call("nonce")["nonce"]
        text = f"checkfu-runner-v1|{purpose}|{self.url}|{subject}|{self.instance}|{nonce}"
        to_sign = self.installation.directory / "to-sign"
        to_sign.write_text(text)
        signature = subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", self.key, "-rawin", "-in", to_sign],
                                   check=True, capture_output=True).stdout
        return {"nonce": nonce, "signature": base64.b64encode(signature).decode(), "instance_id": self.instance,
                "host": {"hostname": "h", "machine": "m", "platform": "linux/x86_64", "version": "0"}}

    def call(self, path, body=None):
        headers = {"content-type": "application/json", **getattr(self, "bearer", {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/v1/runner/{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read() or b"null")

    def hold(self):
        """Takes the waiting session's claim; gives the capability."""
        self.claim = self.call("claims", {"instance_id": self.instance, "request_id": f"creq_{uuid.uuid4().hex}",
                                          "free_slots": 1, "labels": [], "wait_ms": 20000})["claim"]
        renewed = self.renew()
        self.keeper = threading.Thread(target=self.keep, args=(renewed["lease_ms"] / 3000,))
        self.keeper.start()
        return renewed["gateway"]["token"]

    def renew(self):
        return self.call(f"claims/{self.claim['id']}/renew", {"epoch": self.claim["epoch"]})

    def keep(self, pause_seconds):
        while not self.over.wait(pause_seconds):
            self.renew()

    def stop(self):
        self.over.set()
        if self.keeper:
            self.keeper.join()
