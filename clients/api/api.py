"""The API of `outlast serve` as its description says it is: is the description right, and does the server keep to it?

    pip install -r clients/api/requirements.txt
    python clients/api/api.py OUTLAST [SEED]

The description has to be valid OpenAPI and to name what docs/serve.md names. Then everything in it is asked for with made-up
input, right and wrong, the same in every run with the same SEED: nothing may be answered with a 5xx, or other than described.
Not asked for are the streams, which have no end; they have tests of their own. The server has a home of its own, no key,
and a scripted provider; a 429 of its limits is no failure. The exit status is 1 when something was wrong.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from openapi_spec_validator import validate

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = ["/api/sessions/{id}/events", "/api/ws"]
# The page, which is no part of the API.
UNDESCRIBED = {("GET", "/")}
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]
EXAMPLES = 25
LIMIT_S = 180
START_S = 15
# Never answered: what waits for it waits as long as this runs.
HELD = "overloaded:999"


class Server:
    """`outlast serve` in a home of its own."""

    def __init__(self, outlast, folder):
        self.folder = folder
        for name in ["outlast", "home", "work"]:
            (folder / name).mkdir()
        (folder / "outlast/outlast.toml").write_text('provider = "mock"\nmodel = "ok"\n')
        # Nothing of the person who runs this.
        env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "OUTLAST_HOME": str(folder / "outlast")}
        self.run = lambda *args: subprocess.run(
            [outlast, *args], env=env, cwd=folder / "work", check=False, capture_output=True, timeout=60
        )
        self.said = folder / "said"
        command = [outlast, "serve", "--listen", "127.0.0.1:0"]
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                command, env=env, cwd=folder / "work", stdout=said, stderr=said, start_new_session=True
            )
        self.origin = self.address()

    def address(self):
        for _ in range(START_S * 20):
            found = re.search(r"listening on (http://\S+)", self.said.read_text(errors="replace"))
            if found:
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"error: `outlast serve` did not start: {self.said.read_text(errors='replace')}")

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.origin + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read() or b"null")

    def furnish(self):
        """Something to ask for: an answered session, one that waits, one that failed, and a run."""
        sessions = []
        for model in ["ok", HELD, "error:401,times=always"]:
            begun = self.ask("POST", "/api/sessions", {"directory": str(self.folder / "work"), "model": model})
            session = begun.get("id") or begun["session"]["id"]
            self.ask("POST", f"/api/sessions/{session}/prompt", {"text": "say hello"})
            sessions.append(session)
        (self.folder / "work/pipeline.yaml").write_text("steps: [{id: only, command: echo done}]\n")
        self.run("run", "pipeline.yaml")
        runs = [run["id"] for run in self.ask("GET", "/api/runs")["runs"]]
        return {"sessions": sessions, "runs": runs}

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def described(spec):
    methods = {"get", "post", "put", "patch", "delete"}
    return {(method.upper(), path) for path, item in spec["paths"].items() for method in item if method in methods}


def documented():
    """What the table of endpoints in docs/serve.md names."""
    found = set()
    for row in re.findall(r"^\| (`.*?) \|", (ROOT / "docs/serve.md").read_text(), re.MULTILINE):
        path = re.search(r"/[^\s`?]*", row)
        found |= {(method, path[0]) for method in re.findall(r"\b(GET|POST|PUT|PATCH|DELETE)\b", row) if path}
    if len(found) < 10:
        sys.exit("error: docs/serve.md has no table of endpoints")
    return found


def check_description(server):
    with urllib.request.urlopen(f"{server.origin}/api/openapi.json", timeout=10) as response:
        spec = json.loads(response.read())
    validate(spec)
    ours, theirs = documented() - UNDESCRIBED, described(spec) - UNDESCRIBED
    missing = [f"{what} {where}" for what, where in sorted(ours - theirs)]
    more = [f"{what} {where}" for what, where in sorted(theirs - ours)]
    if missing or more:
        sys.exit(f"error: docs/serve.md names {missing}, which the description does not; and does not name {more}")
    print(f"ok      the description is valid, and names the {len(theirs)} endpoints of docs/serve.md")


def configure(server, known):
    """Half of the ids that are asked for are there."""
    lines = []
    for name, values in known.items():
        if values:
            lines += [f"[dictionaries.{name}]", f"values = {json.dumps(values)}"]
            lines += ["[[operations]]", f'include-path-regex = "^/api/{name}/"']
            lines += [f'parameters = {{ "path.id" = {{ dictionary = "{name}", probability = 0.5 }} }}']
    file = server.folder / "schemathesis.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def check_answers(server, config, seed):
    command = [pathlib.Path(sys.executable).parent / "schemathesis", "--config-file", config, "run"]
    command += [f"{server.origin}/api/openapi.json", "--seed", seed, "--max-examples", str(EXAMPLES)]
    command += ["--checks", ",".join(CHECKS), "--continue-on-failure", "--generation-database", "none"]
    command += ["--request-timeout", "10", "--suppress-health-check", "all", "--no-color", "--warnings", "off"]
    for path in STREAMS:
        command += ["--exclude-path", path]
    try:
        code = subprocess.run(command, cwd=server.folder, timeout=LIMIT_S, check=False).returncode
    except subprocess.TimeoutExpired:
        sys.exit(f"error: it was not done after {LIMIT_S} s")
    if code != 0:
        sys.exit(f"error: the server does not keep to its description; the seed was {seed}")
    said = server.said.read_text(errors="replace")
    if server.process.poll() is not None or "panicked" in said:
        sys.exit(f"error: the server did not survive it: {said[-2000:]}")
    server.ask("GET", "/healthz")
    print("ok      everything is answered as described")


def main():
    if len(sys.argv) < 2 or not os.path.exists(sys.argv[1]):
        print("usage: python clients/api/api.py OUTLAST [SEED]", file=sys.stderr)
        sys.exit(2)
    outlast = os.path.abspath(sys.argv[1])
    seed = sys.argv[2] if len(sys.argv) > 2 else "1"
    with tempfile.TemporaryDirectory(prefix="outlast-api-") as folder:
        server = Server(outlast, pathlib.Path(folder))
        try:
            known = server.furnish()
            check_description(server)
            check_answers(server, configure(server, known), seed)
        finally:
            server.end()


main()
