"""Scores of steps by published reward models, in tiny twins of their layouts: trunks of this folder under heads made of
formulas. Each function below goes the way of the model's own example program.

    python test/golden/make_published.py        # transformers, torch
"""

import json
import pathlib

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
OUT = HERE / "published"

SOLUTIONS = [
    {
        "problem": "Tom has 12 apples and finds 7. How many?",
        "steps": ["Tom has 12 + 7 = 19.", "The answer is 19."],
    },
    {"problem": "What is 2 + 3?", "steps": ["2 + 3 = 6", "6 - 1 = 5", "So it is 6."]},
]

# Llama 3's turns and Qwen's, cut down to what their templates do with these messages.
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "{{ '<s>' }}{% for m in messages %}<|head|>{{ m['role'] }}<|/head|>\n\n{{ m['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|head|>assistant<|/head|>\n\n{% endif %}"
)


def make_tokenizer(template):
    """A token for each byte, with those that the layouts ask for; 320 ids or fewer, as the trunks have."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<|im_start|>", "<|im_end|>", "<|head|>", "<|/head|>", "<|eot|>", "<extra_0>"]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    if template is LLAMA:
        start = [("<s>", tokenizer.token_to_id("<s>"))]
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=start)
    words = ["ки", " \n\n\n\n\n", " +", " -"]
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in words])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="<|im_end|>", pad_token="<s>", chat_template=template
    )


def formula(shape, seed):
    """Weights that the test makes too."""
    count = 1
    for extent in shape:
        count *= extent
    values = [((i * 7919 + seed * 104729) % 2003 - 1001) / 4004 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).float().reshape(shape)


def trunk(name):
    model = AutoModel.from_pretrained(HERE / name, dtype=torch.float32).eval()
    return lambda ids: model(torch.tensor([ids])).last_hidden_state[0]


def words(name):
    model = AutoModelForCausalLM.from_pretrained(HERE / name, dtype=torch.float32).eval()
    return lambda ids: model(torch.tensor([ids])).logits[0]


def mlp(x, labels):
    width = x.shape[-1]
    hidden = torch.relu(x @ formula([width, width], 1).T + formula([width], 2))
    return hidden @ formula([labels, width], 3).T + formula([labels], 4)


def qwen_prm(tokenizer):
    model = trunk("qwen2")
    for problem, steps in ((s["problem"], s["steps"]) for s in SOLUTIONS):
        text = tokenizer.apply_chat_template(
            [
                {"role": "system", "content": "Please reason step by step, and put your final answer within \\boxed{}."},
                {"role": "user", "content": problem},
                {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
            ],
            tokenize=False,
            add_generation_prompt=False,
        )
        ids = tokenizer.encode(text, add_special_tokens=False)
        mark = tokenizer.encode("<extra_0>", add_special_tokens=False)[0]
        scores = mlp(model(ids), 2).softmax(-1)[:, 1]
        yield [scores[i].item() for i, token in enumerate(ids) if token == mark]


def reasonflux(tokenizer):
    model = trunk("qwen2")
    for problem, steps in ((s["problem"], s["steps"]) for s in SOLUTIONS):
        messages = [
            {"role": "user", "content": problem},
            {"role": "assistant", "content": "<extra_0>".join(steps) + "<extra_0>"},
        ]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
        ids = torch.tensor([tokenizer.encode(text)])
        logits = mlp(model(ids[0].tolist()), 2)[None]
        masks = ids == tokenizer.encode("<extra_0>")[0]
        kept = logits.softmax(-1) * masks.unsqueeze(-1)
        yield kept[kept != 0].view(-1, 2)[:, 1].tolist()


def qwen_rm(tokenizer):
    model = trunk("qwen2")
    for problem, steps in ((s["problem"], s["steps"]) for s in SOLUTIONS):
        text = tokenizer.apply_chat_template(
            [
                {"role": "user", "content": problem},
                {"role": "assistant", "content": "\n".join(steps)},
            ],
            tokenize=False,
            add_generation_prompt=False,
        )
        ids = tokenizer.encode(text, add_special_tokens=False)
        yield [mlp(model(ids), 1)[-1, 0].item()]


def skywork(tokenizer):
    model = trunk("qwen2")
    for problem, steps in ((s["problem"], s["steps"]) for s in SOLUTIONS):
        ids = tokenizer.encode(tokenizer.bos_token + problem + "\n", add_special_tokens=False)
        mark = tokenizer.encode("\n", add_special_tokens=False)[-1]
        ends = []
        for step in steps:
            ids += tokenizer.encode(step, add_special_tokens=False) + [mark]
            ends.append(len(ids) - 1)
        hidden = model(ids)
        width = hidden.shape[-1]
        values = hidden @ formula([1, width], 5).T + formula([1], 6)
        yield [values[i, 0].sigmoid().item() for i in ends]


def reason_eval(name, skipped, pad):
    def scores(tokenizer):
        tokenizer.pad_token = pad
        model = trunk(name)
        for problem, steps in ((s["problem"], s["steps"]) for s in SOLUTIONS):
            separator = tokenizer.pad_token
            prompt = f"Question:\n{problem}\nAnswer:\nLet's think step by step.\n"
            text = prompt + separator + "".join(s + separator for s in steps)
            # The 7B model's separator is its token of the beginning, so that its program counts one more, and puts one back in front.
            found = tokenizer.encode(text)
            mark = tokenizer.encode(separator, add_special_tokens=False)[-1]
            ids, ends = [], []
            for place, token in enumerate(found):
                if token == mark:
                    ends.append(place - 1 - len(ends))
                else:
                    ids.append(token)
            ids = [tokenizer.bos_token_id] * (skipped == 2) + ids
            hidden = model(ids)
            width = hidden.shape[-1]
            classes = (hidden @ formula([3, width], 7).T).softmax(-1)
            # Negative, neutral, positive: validity is the sum of the last two.
            yield [(classes[i, 1] + classes[i, 2]).item() for i in ends[skipped:]]

    return scores


def tagged(name, tag, good, bad, join):
    def scores(tokenizer):
        model = words(name)
        one = lambda text: tokenizer.encode(text, add_special_tokens=False)[-1]
        for problem, steps in ((s["problem"], s["steps"]) for s in SOLUTIONS):
            output = join.join(f"Step {i + 1}: {s}{tag}" for i, s in enumerate(steps))
            ids = [tokenizer.bos_token_id] * (name != "qwen2") + tokenizer.encode(
                f"{problem} {output}", add_special_tokens=False
            )
            two = model(ids)[:, [one(good), one(bad)]].softmax(-1)[:, 0]
            yield [two[i].item() for i, token in enumerate(ids) if token == one(tag)]

    return scores


def rlhflow(tokenizer):
    model = words("llama3")
    one = lambda text: tokenizer.encode(text, add_special_tokens=False)[-1]
    for problem, steps in ((s["problem"], s["steps"]) for s in SOLUTIONS):
        conversation, found = [], []
        for i, step in enumerate(steps):
            conversation.append({"role": "user", "content": f"{problem} {step}" if i == 0 else step})
            conversation.append({"role": "assistant", "content": "+"})
            text = tokenizer.apply_chat_template(conversation, tokenize=False)
            ids = tokenizer.encode(text, add_special_tokens=False)
            found.append(model(ids)[-3, [one("+"), one("-")]].softmax(-1)[0].item())
        yield found


THINK_PRM = """You are given a math problem and a proposed step-by-step solution:

[Math Problem]

{problem}

[Solution]

{solution}

Review and critique each step in the proposed solution to determine whether each step is correct. If the solution is incomplete, only verify the provided steps."""
# Tokens of an answer, so few that none of these models comes to an end of its own.
MOST = 12


def writes(tokenizer):
    # A token for each byte: more than the 512 that it says.
    model = AutoModelForCausalLM.from_pretrained(HERE / "llama3", dtype=torch.float32, max_position_embeddings=4096).eval()
    end = tokenizer.eos_token_id

    def text(prompt, most):
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        own = model.generate(
            torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), do_sample=False,
            max_new_tokens=most, eos_token_id=None, pad_token_id=end,
        )[0][len(ids) :]
        return tokenizer.decode(own, skip_special_tokens=True)

    return text


def think_prm(tokenizer):
    """Prompts and likeliest answers, in their order."""
    write = writes(tokenizer)
    for s in SOLUTIONS:
        solution = "\n".join(f"Step {i + 1}: {step}" for i, step in enumerate(s["steps"]))
        content = THINK_PRM.replace("{problem}", s["problem"]).replace("{solution}", solution)
        messages = [{"role": "user", "content": content}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        prompt += "\nLet's verify step by step:"
        yield [[prompt, write(prompt, MOST)]]


def gen_prm(tokenizer):
    """The same, for each step an analysis and a judgement."""
    write = writes(tokenizer)
    for s in SOLUTIONS:
        messages = [{"role": "system", "content": "You are a math teacher. Your task is to review and critique the paragraphs in solution step by step."}]
        steps, asked = list(s["steps"]), []
        steps[0] = s["problem"] + "\n" + steps[0]
        for i, step in enumerate(steps):
            messages.append({"role": "user", "content": step})
            prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            start = f"<analyze>\nLet's analyze the Paragraph {i + 1} step by step: "
            analysis = write(prompt + start, MOST)
            asked.append([prompt + start, analysis])
            # Not ended within its tokens: what its program calls "degrade into analyze mode".
            text = start + analysis.split("</analyze>")[0] + "</analyze>\n" + "<output>\n**Judgement**: $\\boxed"
            rest = write(prompt + text, 20)
            asked.append([prompt + text, rest])
            messages.append({"role": "assistant", "content": text + rest})
        yield asked


OUT.mkdir(exist_ok=True)
for name, template in (("chatml", CHATML), ("llama", LLAMA)):
    folder = OUT / name
    folder.mkdir(exist_ok=True)
    made = make_tokenizer(template)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(made.backend_tokenizer.to_str()), ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {"bos_token": "<s>", "eos_token": "<|im_end|>", "pad_token": "<s>", "chat_template": template}, indent=1
        )
    )
KINDS = {
    "qwen_prm": (qwen_prm, CHATML),
    "reasonflux": (reasonflux, CHATML),
    "qwen_rm": (qwen_rm, CHATML),
    "skywork": (skywork, CHATML),
    "reason_eval_7b": (reason_eval("mistral", 2, "<s>"), LLAMA),
    "reason_eval_34b": (reason_eval("llama3", 1, "<|eot|>"), LLAMA),
    "math_shepherd": (tagged("mistral", " ки", "+", "-", "\n"), LLAMA),
    "math_psa": (tagged("qwen2", " \n\n\n\n\n", " +", " -", " "), CHATML),
    "rlhflow": (rlhflow, LLAMA),
}
with torch.no_grad():
    scores = {name: list(of(make_tokenizer(template))) for name, (of, template) in KINDS.items()}
(OUT / "scores.json").write_text(json.dumps({"solutions": SOLUTIONS, "scores": scores}, indent=1) + "\n")
with torch.no_grad():
    tokenizer = make_tokenizer(LLAMA)
    answers = {"think_prm": list(think_prm(tokenizer)), "gen_prm": list(gen_prm(tokenizer))}
(OUT / "answers.json").write_text(json.dumps({"most": MOST, "answers": answers}, indent=1) + "\n")
