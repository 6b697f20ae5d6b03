"""`outlast serve` in a home of its own, with something in it to ask for."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HANG_TIMEOUT_S = 120
# Never answered: what waits for it waits as long as this runs.
HELD = "overloaded:999"


class Server:
    def __init__(self, outlast, folder):
        self.outlast = outlast
        self.folder = folder
        self.work = folder / "work"
        self.processes = []
        for name in ["outlast", "home", "work"]:
            (folder / name).mkdir()
        (folder / "outlast/outlast.toml").write_text('provider = "mock"\nmodel = "ok"\n')
        # Nothing of the person who runs this.
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "OUTLAST_HOME": str(folder / "outlast")}
        self.origin = self.listen("serve", "--listen", "127.0.0.1:0")

    def listen(self, *args):
        """Starts one of our servers; where it listens."""
        said = self.folder / f"{args[0]}.log"
        with said.open("wb") as log:
            process = subprocess.Popen(
                [self.outlast, *args], env=self.env, cwd=self.work, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(process)
        for _ in range(HANG_TIMEOUT_S * 20):
            found = re.search(r"listening on (http://\S+)", said.read_text(errors="replace"))
            if found:
                return found[1]
            if process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"error: `outlast {args[0]}` did not start: {said.read_text(errors='replace')}")

    def send(self, method, path, body=None, accept="application/json"):
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "accept": accept}
        request = urllib.request.Request(self.origin + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=HANG_TIMEOUT_S) as response:
            return response.read()

    def ask(self, method, path, body=None):
        return json.loads(self.send(method, path, body) or b"null")

    def begin(self, **settings):
        return self.ask("POST", "/api/sessions", {"directory": str(self.work), **settings})["id"]

    def furnish(self):
        """An answered session, one that waits and one that failed, a run, and a gateway that holds a request; their ids."""
        sessions = [self.begin(model=model) for model in ["ok", HELD, "error:401,times=always"]]
        for session in sessions:
            self.ask("POST", f"/api/sessions/{session}/prompt", {"text": "say hello"})
        (self.work / "pipeline.yaml").write_text("steps: [{id: only, command: echo done}]\n")
        run = [self.outlast, "run", "pipeline.yaml"]
        subprocess.run(run, env=self.env, cwd=self.work, check=True, capture_output=True, timeout=HANG_TIMEOUT_S)
        runs = [run["id"] for run in self.ask("GET", "/api/runs")["runs"]]
        return {"sessions": ("id", sessions), "runs": ("id", runs), "gateways": ("port", [self.hold()])}

    def hold(self):
        """A gateway with a request that waits; its port."""
        address = self.listen("gateway", "--listen", "127.0.0.1:0", "--upstream", f"mock:{HELD}")
        port = int(address.rpartition(":")[2])
        body = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
        head = f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {len(body)}\r\n\r\n"
        # Whoever hangs up is not held.
        self.held = socket.create_connection(("127.0.0.1", port))
        self.held.sendall(head.encode() + body)
        return port

    def said(self):
        return (self.folder / "serve.log").read_text(errors="replace")

    def is_well(self):
        return self.processes[0].poll() is None and "panicked" not in self.said()

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
