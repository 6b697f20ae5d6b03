"""The API of `outlast serve` as its description says it is: is the description right, and does the server keep to it?

    pip install -r clients/api/requirements.txt
    python clients/api/api.py OUTLAST [SEED]

The description has to be valid OpenAPI and to name what docs/serve.md names. Then everything in it is asked for with made-up
input, right and wrong, the same in every run with the same SEED: nothing may be answered with a 5xx, or other than described.
Not asked for in this way are the streams, which have no end; of some turns that end, every line is compared. The server has
a home of its own, no key, and a scripted provider; a 429 of its limits is no failure. The exit status is 1 when something
was wrong.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
STREAMS = ["/api/sessions/{id}/events"]
# The page, the description itself, what answers without words, and what OpenAPI has no words for.
UNDESCRIBED = {("GET", path) for path in ["/", "/api/openapi.json", "/healthz", "/api/ws"]}
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
]
EXAMPLES = 25
# Only keep a server or a check that hangs from lasting for ever.
HANG_TIMEOUT_S = 1800
REQUEST_HANG_TIMEOUT_S = 120
# Turns of every kind, and how they end.
TURNS = {
    "ok:mixed": "completed",
    "ok:reasoning": "completed",
    "overloaded:2": "completed",
    "drop-after:2": "completed",
    "error:401,times=always": "error",
}


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
    spec = server.ask("GET", "/api/openapi.json")
    validate(spec)
    ours, theirs = documented() - UNDESCRIBED, described(spec) - UNDESCRIBED
    missing = [f"{what} {where}" for what, where in sorted(ours - theirs)]
    more = [f"{what} {where}" for what, where in sorted(theirs - ours)]
    if missing or more:
        sys.exit(f"error: docs/serve.md names {missing}, which the description does not; and does not name {more}")
    print(f"ok      the description is valid, and names the {len(theirs)} endpoints of docs/serve.md", flush=True)
    return spec


def check_turns(server, spec):
    """Every line of a turn that is answered as a stream is what the description calls an event."""
    event = Draft202012Validator({"$ref": "#/components/schemas/TurnEvent", "components": spec["components"]})
    for model, status in TURNS.items():
        session = server.begin(model=model, policy="aggressive", after_content="retract")
        body = server.send("POST", f"/api/sessions/{session}/prompt", {"text": "hello"}, "application/x-ndjson")
        events = [json.loads(line) for line in body.splitlines()]
        wrong = [(error.message, told) for told in events for error in event.iter_errors(told)]
        if wrong:
            sys.exit(f"error: a turn of `{model}` says what is not described: {wrong[0]}")
        if events[-1].get("status") != status:
            sys.exit(f"error: a turn of `{model}` ends with {events[-1]}")
    print(f"ok      every line of {len(TURNS)} streams is as described", flush=True)


def configure(server, known):
    """Half of the things that are asked for are there."""
    lines = []
    for name, (parameter, values) in known.items():
        lines += [f"[dictionaries.{name}]", f"values = {json.dumps(values)}"]
        lines += ["[[operations]]", f'include-path-regex = "^/api/{name}/"']
        lines += [f'parameters = {{ "path.{parameter}" = {{ dictionary = "{name}", probability = 0.5 }} }}']
    file = server.folder / "schemathesis.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def check_answers(server, config, seed):
    command = [pathlib.Path(sys.executable).parent / "schemathesis", "--config-file", config, "run"]
    command += [f"{server.origin}/api/openapi.json", "--seed", seed, "--max-examples", str(EXAMPLES)]
    command += ["--checks", ",".join(CHECKS), "--continue-on-failure", "--generation-database", "none"]
    command += ["--request-timeout", str(REQUEST_HANG_TIMEOUT_S), "--suppress-health-check", "all"]
    command += ["--no-color", "--warnings", "off"]
    for path in STREAMS:
        command += ["--exclude-path", path]
    try:
        code = subprocess.run(command, cwd=server.folder, timeout=HANG_TIMEOUT_S, check=False).returncode
    except subprocess.TimeoutExpired:
        sys.exit(f"error: it hangs: not done after {HANG_TIMEOUT_S} s")
    if not server.is_well():
        sys.exit(f"error: the server did not survive it; the seed was {seed}: {server.said()[-2000:]}")
    if code != 0:
        sys.exit(f"error: the server does not keep to its description; the seed was {seed}")
    server.send("GET", "/healthz")
    print("ok      everything is answered as described")


def main():
    if len(sys.argv) < 2 or not os.path.exists(sys.argv[1]):
        print("usage: python clients/api/api.py OUTLAST [SEED]", file=sys.stderr)
        sys.exit(2)
    seed = sys.argv[2] if len(sys.argv) > 2 else "1"
    with tempfile.TemporaryDirectory(prefix="outlast-api-") as folder:
        server = Server(os.path.abspath(sys.argv[1]), pathlib.Path(folder))
        try:
            known = server.furnish()
            spec = check_description(server)
            check_turns(server, spec)
            check_answers(server, configure(server, known), seed)
        finally:
            server.end()


main()
