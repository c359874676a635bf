"""OpenAI's package for Python against a server: openai_python.py BASE_URL MODEL. Prints a line of JSON for each check."""

import asyncio
import json
import sys

import openai

base_url, model = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
messages = [{"role": "user", "content": "What is 3 + 4?"}]
few = {"model": model, "max_tokens": 8, "temperature": 0}


def check(name):
    def run(body):
        try:
            print(json.dumps({"name": name, "ok": True, "detail": body() or ""}), flush=True)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"[:600]
            print(json.dumps({"name": name, "ok": False, "detail": detail}), flush=True)

    return run


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error.body["message"]
    raise AssertionError(f"expected {kind.__name__}")


def conversed(sent, **more):
    """The reply's text, or the sentence that refuses a conversation of which the model's template would show a part alone."""
    try:
        return client.chat.completions.create(**few, messages=sent, **more).choices[0].message.content
    except openai.BadRequestError as error:
        assert "leaves one out of these" in error.body["message"], error
        return error.body["message"]


@check("models.list and models.retrieve")
def _():
    assert client.models.retrieve(client.models.list().data[0].id).id == model
    refused(openai.NotFoundError, lambda: client.models.retrieve("no/such-model"))


@check("completions, with alternatives of the prompt")
def _():
    answer = client.completions.create(**few, prompt=["One, two,", "A b"], logprobs=2, echo=True, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    top = answer.choices[0].logprobs.top_logprobs
    assert top[0] is None and all(len(each) >= 2 for each in top[1:]), top


@check("chat, and the reply sent back, as object and as dictionary")
def _():
    reply = client.chat.completions.create(**few, messages=messages, logprobs=True, top_logprobs=2).choices[0].message
    for sent in (reply, reply.model_dump(), {**reply.model_dump(), "annotations": None, "reasoning_content": None}):
        answer = conversed([*messages, sent, {"role": "user", "content": "And 5?"}])
    return answer


@check("a stream gives the same text")
def _():
    whole = client.chat.completions.create(**few, messages=messages)
    stream = client.chat.completions.create(
        **few, messages=messages, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == whole.choices[0].message.content, text
    assert chunks[-1].usage == whole.usage


@check("the helper of streams, and many at once")
def _():
    # It raises where a reply is cut off.
    with client.chat.completions.stream(**{**few, "max_tokens": 100}, messages=messages) as stream:
        assert stream.get_final_completion().choices[0].message.role == "assistant"

    async def many():
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as each:
            calls = [each.completions.create(**few, prompt=f"{i} + 1 =") for i in range(8)]
            return await asyncio.gather(*calls)

    assert len(asyncio.run(many())) == 8


@check("fields that ask for nothing")
def _():
    client.chat.completions.create(
        **few,
        messages=messages,
        tools=[],
        modalities=["text"],
        stop="",
        seed=-7,
        user="u",
        extra_body={"echo": False, "documents": None},
    )


@check("penalties, a developer, vLLM's fields")
def _():
    return conversed(
        [{"role": "developer", "content": "Be brief."}, *messages],
        presence_penalty=0.5,
        frequency_penalty=0.5,
        extra_body={"repetition_penalty": 1.1, "top_k": 20, "min_p": 0.01, "seed": -1},
    )


@check("a reply that is begun")
def _():
    return conversed(
        [*messages, {"role": "assistant", "content": "Step 1: 3 + 4 ="}],
        extra_body={"add_generation_prompt": False, "continue_final_message": True},
    )


@check("refusals are sentences")
def _():
    chat = lambda **more: lambda: client.chat.completions.create(**{**few, "messages": messages, **more})
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    return " | ".join(
        [
            refused(openai.BadRequestError, chat(response_format={"type": "json_object"})),
            refused(openai.BadRequestError, chat(tools=tools, tool_choice="required")),
            refused(openai.NotFoundError, chat(model="gpt-9")),
        ]
    )
