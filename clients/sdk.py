#!/usr/bin/env python3
"""The official Python clients against the scripted provider: do they take its answers and its errors for real ones?

    python3 -m venv env && env/bin/pip install -r clients/requirements.txt
    env/bin/python clients/sdk.py target/debug/outlast     starts `outlast mock` and stops it again
    env/bin/python clients/sdk.py http://127.0.0.1:8080    asks one that is running

Every case begins with all scripts at their beginning. The clients' own retries are off, but for the one case about
them. The exit status is 1 when a case failed, 2 when there was nothing to ask.
"""

import base64
import json
import subprocess
import sys
import time
import traceback
import urllib.request

import anthropic
import openai

CASES = []
GREETING = "Hello from the scripted provider: no network, no key, no cost. You said: "
QUESTION = "Say hello"
WORDS = len((GREETING + QUESTION).split())
KEY = "planted-key-7f3a9c1e5b"
PIXEL = base64.b64encode(b"not really a picture").decode()
TOOL = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ARGUMENTS = {"path": "scripted"}
# Keeps a request that hangs from lasting for ever.
HANG_TIMEOUT_S = 120
SLOWEST_COUNT = 5


def case(function):
    CASES.append(function)
    return function


def same(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


def raises(kind, call):
    try:
        call()
    except kind as error:
        # A subclass is another error.
        same(type(error), kind)
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


class Mock:
    """A running server, and clients that ask it."""

    def __init__(self, url):
        self.url = url

    def control(self, method, path):
        request = urllib.request.Request(f"{self.url}/_outlast/{path}", method=method)
        with urllib.request.urlopen(request) as response:
            return json.load(response)

    def anthropic(self, script, retries=0):
        headers = {"x-outlast-script": script}
        client = anthropic.Anthropic(
            base_url=self.url, api_key=KEY, max_retries=retries, default_headers=headers, timeout=HANG_TIMEOUT_S
        )
        return client.messages

    def openai(self, script, retries=0):
        headers = {"x-outlast-script": script}
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=KEY, max_retries=retries, default_headers=headers, timeout=HANG_TIMEOUT_S
        )

    def requests(self):
        return self.control("GET", "requests")["requests"]


# --- Anthropic Messages ---

MESSAGES = dict(model="claude-test", max_tokens=100, messages=[{"role": "user", "content": QUESTION}])
ANTHROPIC_TOOLS = [{"name": "read_file", "description": "Reads a file.", "input_schema": TOOL}]


def always(script):
    return f"{script},times=always" if ":" in script else f"{script}:times=always"


def both_messages(mock, script, **more):
    """The same answer, accumulated from its stream and as a whole."""
    with mock.anthropic(always(script)).stream(**{**MESSAGES, **more}) as stream:
        streamed = stream.get_final_message()
    whole = mock.anthropic(always(script)).create(**{**MESSAGES, **more})
    same(contents(streamed), contents(whole))
    same(streamed.stop_reason, whole.stop_reason)
    return streamed, whole


def contents(message):
    return [block.model_dump(exclude_unset=True, exclude={"parsed_output"}) for block in message.content]


@case
def anthropic_text_and_usage(mock):
    for message in both_messages(mock, "ok"):
        same([block.type for block in message.content], ["text"])
        same(message.content[0].text, GREETING + QUESTION)
        same((message.model, message.role, message.stop_reason), ("claude-test", "assistant", "end_turn"))
        assert message.usage.input_tokens > 0, message.usage
        same(message.usage.output_tokens, WORDS)


@case
def anthropic_text_stream_yields_the_words(mock):
    with mock.anthropic("ok").stream(**MESSAGES) as stream:
        words = list(stream.text_stream)
    same(len(words), WORDS)
    same("".join(words), GREETING + QUESTION)


@case
def anthropic_thinking_keeps_its_signature_on_the_way_there_and_back(mock):
    streamed, whole = both_messages(mock, "ok:reasoning")
    thinking = whole.content[0]
    same((thinking.type, whole.content[1].type), ("thinking", "text"))
    assert thinking.signature and thinking.thinking, thinking
    conversation = MESSAGES["messages"] + [
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in streamed.content]},
        {"role": "user", "content": "And again"},
    ]
    mock.anthropic("ok").create(**{**MESSAGES, "messages": conversation})
    sent = mock.requests()[-1]["body"]["messages"][1]["content"][0]
    same((sent["thinking"], sent["signature"]), (thinking.thinking, thinking.signature))


@case
def anthropic_tool_calls_are_put_together(mock):
    for script, count in [("ok:tool", 1), ("ok:tools", 2)]:
        for message in both_messages(mock, script, tools=ANTHROPIC_TOOLS):
            calls = [block for block in message.content if block.type == "tool_use"]
            same([(call.name, call.input) for call in calls], [("read_file", ARGUMENTS)] * count)
            same(len({call.id for call in calls}), count)
            same(message.stop_reason, "tool_use")


@case
def anthropic_other_ends(mock):
    for script, reason in [("ok:refusal", "refusal"), ("ok:length", "max_tokens"), ("ok:empty", "end_turn")]:
        for message in both_messages(mock, script):
            same(message.stop_reason, reason)


@case
def anthropic_unknown_frames_are_passed_over(mock):
    with mock.anthropic("ok:unknown-frames").stream(**MESSAGES) as stream:
        same(stream.get_final_text(), GREETING + QUESTION)


@case
def anthropic_images_arrive(mock):
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]
    for message in both_messages(mock, "ok:image-seen", messages=[{"role": "user", "content": content}]):
        same(message.content[0].text, "I see 1: image/png of 20 bytes.")


@case
def anthropic_errors_have_their_classes(mock):
    table = [
        ("error:400", anthropic.BadRequestError, 400),
        ("overflow", anthropic.BadRequestError, 400),
        ("echo-key", anthropic.AuthenticationError, 401),
        ("error:403", anthropic.PermissionDeniedError, 403),
        ("error:404", anthropic.NotFoundError, 404),
        ("rate-limited:retry-after=7", anthropic.RateLimitError, 429),
        ("error:500", anthropic.InternalServerError, 500),
        ("overloaded", anthropic.OverloadedError, 529),
    ]
    for script, kind, status in table:
        error = raises(kind, lambda: mock.anthropic(script).create(**MESSAGES))
        assert isinstance(error, anthropic.APIStatusError)
        same(error.status_code, status)
        same(error.body["type"], "error")
        assert error.request_id.startswith("req_scripted_"), error.request_id
        if status == 429:
            same(error.response.headers["retry-after"], "7")


@case
def anthropic_errors_in_a_stream_are_raised(mock):
    for script in ["in-band:overloaded", "in-band:overloaded,after=3"]:
        def read():
            with mock.anthropic(script).stream(**MESSAGES) as stream:
                stream.get_final_message()

        error = raises(anthropic.APIStatusError, read)
        same(error.body["error"]["type"], "overloaded_error")


@case
def anthropic_retries_wait_as_long_as_they_are_told(mock):
    # Until then every request is refused: one refusal says that the client has waited.
    mock.anthropic("rate-limited:retry-after=1", retries=2).create(**MESSAGES)
    same([entry["fault"] for entry in mock.requests()], ["rate-limited:retry-after=1", "ok"])


@case
def anthropic_models_are_listed(mock):
    client = anthropic.Anthropic(base_url=mock.url, api_key=KEY, max_retries=0)
    models = list(client.models.list())
    assert "overloaded" in [model.id for model in models], models
    assert models[0].created_at.year == 2026 and models[0].display_name, models[0]


# --- OpenAI Chat Completions ---

CHAT = dict(model="gpt-test", messages=[{"role": "user", "content": QUESTION}])
CHAT_TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": TOOL}}]


def both_completions(mock, script, **more):
    with mock.openai(always(script)).chat.completions.stream(
        **{**CHAT, **more}, stream_options={"include_usage": True}
    ) as stream:
        streamed = stream.get_final_completion()
    whole = mock.openai(always(script)).chat.completions.create(**{**CHAT, **more})
    for name in ["content", "refusal"]:
        same(getattr(streamed.choices[0].message, name), getattr(whole.choices[0].message, name))
    same(streamed.choices[0].finish_reason, whole.choices[0].finish_reason)
    return streamed, whole


@case
def chat_text_and_usage(mock):
    for completion in both_completions(mock, "ok"):
        same(completion.choices[0].message.content, GREETING + QUESTION)
        same((completion.model, completion.choices[0].finish_reason), ("gpt-test", "stop"))
        assert completion.usage.prompt_tokens > 0, completion.usage
        same(completion.usage.completion_tokens, WORDS)
        same(completion.usage.total_tokens, completion.usage.prompt_tokens + WORDS)


@case
def chat_usage_comes_only_when_it_is_asked_for(mock):
    chunks = list(mock.openai("ok").chat.completions.create(**CHAT, stream=True))
    same([chunk.usage for chunk in chunks], [None] * len(chunks))
    asked = mock.openai("ok:times=2").chat.completions.create(
        **CHAT, stream=True, stream_options={"include_usage": True}
    )
    last = list(asked)[-1]
    same(last.choices, [])
    assert last.usage is not None


@case
def chat_reasoning_comes_along(mock):
    for completion in both_completions(mock, "ok:reasoning"):
        message = completion.choices[0].message
        assert message.model_extra["reasoning_content"].startswith("The user said"), message
        same(message.content, GREETING + QUESTION)


@case
def chat_tool_calls_are_put_together(mock):
    for script, count in [("ok:tool", 1), ("ok:tools", 2)]:
        for completion in both_completions(mock, script, tools=CHAT_TOOLS):
            calls = completion.choices[0].message.tool_calls
            found = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
            same(found, [("read_file", ARGUMENTS)] * count)
            same(len({call.id for call in calls}), count)
            same(completion.choices[0].finish_reason, "tool_calls")


@case
def chat_other_ends(mock):
    for completion in both_completions(mock, "ok:refusal"):
        message = completion.choices[0].message
        same((message.content, message.refusal), (None, "I'm sorry, but I can't help with that."))
    raises(openai.LengthFinishReasonError, lambda: both_completions(mock, "ok:length"))
    whole = mock.openai("ok:length").chat.completions.create(**CHAT)
    same(whole.choices[0].finish_reason, "length")
    for completion in both_completions(mock, "ok:empty"):
        assert not completion.choices[0].message.content


@case
def chat_unknown_frames_are_passed_over(mock):
    with mock.openai("ok:unknown-frames").chat.completions.stream(**CHAT) as stream:
        same(stream.get_final_completion().choices[0].message.content, GREETING + QUESTION)


@case
def chat_images_arrive(mock):
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}]
    for completion in both_completions(mock, "ok:image-seen", messages=messages):
        same(completion.choices[0].message.content, "I see 1: image/png of 20 bytes.")


OPENAI_ERRORS = [
    ("overflow", openai.BadRequestError, 400, "context_length_exceeded"),
    ("echo-key", openai.AuthenticationError, 401, "invalid_api_key"),
    ("error:403", openai.PermissionDeniedError, 403, None),
    ("error:404", openai.NotFoundError, 404, "model_not_found"),
    ("rate-limited:retry-after=7", openai.RateLimitError, 429, "rate_limit_exceeded"),
    ("error:429,code=insufficient_quota", openai.RateLimitError, 429, "insufficient_quota"),
    ("error:500", openai.InternalServerError, 500, None),
]


def check_openai_errors(ask):
    for script, kind, status, code in OPENAI_ERRORS:
        error = raises(kind, lambda: ask(script))
        same((error.status_code, error.code), (status, code))
        assert error.request_id.startswith("req_scripted_"), error.request_id
        if "retry-after" in script:
            same(error.response.headers["retry-after"], "7")
    error = raises(openai.InternalServerError, lambda: ask("overloaded"))
    same(error.status_code, 503)


@case
def chat_errors_have_their_classes(mock):
    check_openai_errors(lambda script: mock.openai(script).chat.completions.create(**CHAT))


@case
def chat_errors_in_a_stream_are_raised(mock):
    for script in ["in-band:overloaded", "in-band:billing,after=3", "in-band:rate-limited,after=1,as=end"]:
        def read():
            list(mock.openai(script).chat.completions.create(**CHAT, stream=True))

        raises(openai.APIError, read)


@case
def chat_retries_wait_as_long_as_they_are_told(mock):
    # As above.
    mock.openai("rate-limited:retry-after=1,as=ms", retries=2).chat.completions.create(**CHAT)
    same([entry["fault"] for entry in mock.requests()], ["rate-limited:retry-after=1,as=ms", "ok"])


@case
def openai_models_are_listed(mock):
    models = list(mock.openai("ok").models.list())
    assert "overloaded" in [model.id for model in models], models


# --- OpenAI Responses ---

RESPONSES = dict(model="gpt-test", input=QUESTION)
RESPONSES_TOOLS = [
    {"type": "function", "name": "read_file", "description": "Reads.", "parameters": TOOL, "strict": False}
]


def both_responses(mock, script, **more):
    with mock.openai(always(script)).responses.stream(**{**RESPONSES, **more}) as stream:
        streamed = stream.get_final_response()
    whole = mock.openai(always(script)).responses.create(**{**RESPONSES, **more})
    parsed = {"content": {"__all__": {"parsed"}}, "parsed_arguments": True}
    same([item.model_dump(exclude=parsed) for item in streamed.output], [item.model_dump() for item in whole.output])
    same(streamed.status, whole.status)
    return streamed, whole


@case
def responses_text_and_usage(mock):
    for response in both_responses(mock, "ok"):
        same(response.output_text, GREETING + QUESTION)
        same((response.model, response.status), ("gpt-test", "completed"))
        assert response.usage.input_tokens > 0, response.usage
        same(response.usage.output_tokens, WORDS)


@case
def responses_reasoning_keeps_its_content_on_the_way_there_and_back(mock):
    _, whole = both_responses(mock, "ok:reasoning", include=["reasoning.encrypted_content"])
    thought = whole.output[0]
    same((thought.type, whole.output[1].type), ("reasoning", "message"))
    assert thought.encrypted_content and thought.summary[0].text, thought
    again = [item.model_dump(exclude_none=True) for item in whole.output]
    mock.openai("ok").responses.create(model="gpt-test", input=again + [{"role": "user", "content": "Again"}])
    sent = mock.requests()[-1]["body"]["input"][0]
    same((sent["id"], sent["encrypted_content"]), (thought.id, thought.encrypted_content))


@case
def responses_tool_calls_are_put_together(mock):
    for script, count in [("ok:tool", 1), ("ok:tools", 2)]:
        for response in both_responses(mock, script, tools=RESPONSES_TOOLS):
            calls = [item for item in response.output if item.type == "function_call"]
            found = [(call.name, json.loads(call.arguments)) for call in calls]
            same(found, [("read_file", ARGUMENTS)] * count)
            same(len({call.call_id for call in calls}), count)


@case
def responses_events_are_numbered_and_end(mock):
    events = list(mock.openai("ok:tools").responses.create(**RESPONSES, stream=True))
    same([event.sequence_number for event in events], list(range(len(events))))
    same((events[0].type, events[-1].type), ("response.created", "response.completed"))
    for event in events:
        # Every event is one of those that the client knows, with every field that it wants.
        type(event).model_validate(event.to_dict())


@case
def responses_other_ends(mock):
    for response in both_responses(mock, "ok:refusal"):
        same(response.output[0].content[0].refusal, "I'm sorry, but I can't help with that.")
    whole = mock.openai("ok:length").responses.create(**RESPONSES)
    same((whole.status, whole.incomplete_details.reason), ("incomplete", "max_output_tokens"))
    last = list(mock.openai("ok:length,times=2").responses.create(**RESPONSES, stream=True))[-1]
    same((last.type, last.response.status), ("response.incomplete", "incomplete"))
    for response in both_responses(mock, "ok:empty"):
        same(response.output, [])


@case
def responses_unknown_frames_are_passed_over(mock):
    with mock.openai("ok:unknown-frames").responses.stream(**RESPONSES) as stream:
        same(stream.get_final_response().output_text, GREETING + QUESTION)


@case
def responses_images_arrive(mock):
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}
    content = [{"type": "input_text", "text": "What is this?"}, image]
    for response in both_responses(mock, "ok:image-seen", input=[{"role": "user", "content": content}]):
        same(response.output_text, "I see 1: image/png of 20 bytes.")


@case
def responses_errors_have_their_classes(mock):
    check_openai_errors(lambda script: mock.openai(script).responses.create(**RESPONSES))


@case
def responses_errors_in_a_stream_are_seen(mock):
    def read():
        list(mock.openai("in-band:overloaded,after=1,as=event").responses.create(**RESPONSES, stream=True))

    error = raises(openai.APIError, read)
    same(error.code, "server_is_overloaded")
    failed = list(mock.openai("in-band:overflow,after=1").responses.create(**RESPONSES, stream=True))[-1]
    same((failed.type, failed.response.status), ("response.failed", "failed"))
    same(failed.response.error.code, "context_length_exceeded")


# --- connections ---


@case
def broken_connections_are_connection_errors(mock):
    for script in ["reset", "close"]:
        raises(anthropic.APIConnectionError, lambda: mock.anthropic(script).create(**MESSAGES))
        mock.control("DELETE", "script")
        raises(openai.APIConnectionError, lambda: mock.openai(script).chat.completions.create(**CHAT))


@case
def compressed_answers_are_read(mock):
    for message in both_messages(mock, "gzip"):
        same(message.content[0].text, GREETING + QUESTION)


@case
def the_key_is_in_no_log(mock):
    mock.anthropic("ok").create(**MESSAGES)
    mock.openai("ok").chat.completions.create(**CHAT)
    log = json.dumps(mock.requests())
    assert KEY not in log and "(hidden)" in log, log


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    target, process = sys.argv[1], None
    if not target.startswith("http://"):
        command = [target, "mock", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline().strip()
        prefix = "listening on "
        if not line.startswith(prefix):
            print(f"`{' '.join(command)}` said {line!r} instead of its address", file=sys.stderr)
            return 2
        target = line.removeprefix(prefix)
    try:
        return run(Mock(target.rstrip("/")))
    finally:
        if process:
            process.terminate()
            process.wait()


def run(mock):
    failed, seconds = [], {}
    for function in CASES:
        mock.control("DELETE", "script")
        mock.control("DELETE", "requests")
        name = function.__name__.replace("_", " ")
        began = time.perf_counter()
        try:
            function(mock)
            print(f"ok      {name}")
        except Exception:
            failed.append(name)
            print(f"FAILED  {name}\n{traceback.format_exc()}")
        seconds[name] = time.perf_counter() - began
    print("slowest:")
    for name in sorted(seconds, key=seconds.get, reverse=True)[:SLOWEST_COUNT]:
        print(f"  {seconds[name]:6.1f} s  {name}")
    print(f"\n{len(CASES) - len(failed)} of {len(CASES)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
