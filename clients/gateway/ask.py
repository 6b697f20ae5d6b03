#!/usr/bin/env python3
"""Asks one question with an official client as it comes, with its own retries and time limits, and prints the answer.

    env/bin/python clients/gateway/ask.py anthropic|chat|responses streamed|whole http://127.0.0.1:8080
"""

import sys

dialect, form, address = sys.argv[1:]
QUESTION = [{"role": "user", "content": "Say hello"}]


def messages(streamed):
    import anthropic

    asked = dict(model="scripted", max_tokens=100, messages=QUESTION)
    client = anthropic.Anthropic(base_url=address, api_key="made-up").messages
    if not streamed:
        return client.create(**asked).content[0].text
    with client.stream(**asked) as stream:
        return stream.get_final_message().content[0].text


def chat(streamed):
    asked = dict(model="scripted", messages=QUESTION)
    client = openai_client().chat.completions
    if not streamed:
        return client.create(**asked).choices[0].message.content
    # Like most code: every chunk has a choice.
    return "".join(chunk.choices[0].delta.content or "" for chunk in client.create(stream=True, **asked))


def responses(streamed):
    asked = dict(model="scripted", input=QUESTION)
    client = openai_client().responses
    if not streamed:
        return client.create(**asked).output_text
    with client.stream(**asked) as stream:
        return stream.get_final_response().output_text


def openai_client():
    import openai

    return openai.OpenAI(base_url=f"{address}/v1", api_key="made-up")


ask = {"anthropic": messages, "chat": chat, "responses": responses}[dialect]
print(ask({"streamed": True, "whole": False}[form]))
