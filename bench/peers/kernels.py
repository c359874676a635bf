"""Ops bound by memory, as PyTorch users write them; gradients by autograd where the op gives them too."""

import torch
import torch.nn.functional as F
from gemm import DTYPES
from stopwatch import copies_for, stopwatch

EMBEDDED_TOKENS = 32_768
SEQUENCE = 256
HEAD_DIM = 64
EPS = 1e-8


def bench(item, setting, seconds):
    copies = copies_for(item["bytes"])
    return stopwatch(seconds, PREPARE[item["op"]](item, copies))


def activations(item, copies, count, grad=False):
    shape = (item["rows"], item["width"])
    return [
        [torch.randn(shape, dtype=DTYPES[item["dtype"]], requires_grad=grad) for _ in range(count)]
        for _ in range(copies)
    ]


def columns(item, copies, count, grads=0):
    return [[torch.randn(item["rows"], requires_grad=i < grads) for i in range(count)] for _ in range(copies)]


def each(sets, body):
    """A run on the next set of operands."""
    return lambda run: body(*sets[run % len(sets)])


def without_grad(body):
    def run(*operands):
        with torch.inference_mode():
            return body(*operands)

    return run


def copy(item, copies):
    return each(activations(item, copies, 1), without_grad(torch.clone))


def rmsnorm(item, copies):
    weight = torch.randn(item["width"], dtype=DTYPES[item["dtype"]])

    def body(x, residual):
        total = x + residual
        return total, F.rms_norm(total, weight.shape, weight, 1e-6)

    return each(activations(item, copies, 2), without_grad(body))


def backward(forward, sets, residual=False):
    """The gradient of `forward`, whose graphs are made beforehand; `residual` adds a gradient that came another way."""
    ready = [(forward(*operands), operands, torch.randn_like(operands[0])) for operands in sets]

    def run(i):
        y, operands, dy = ready[i % len(ready)]
        gradients = torch.autograd.grad(y, operands, dy, retain_graph=True)
        return gradients[0] + dy if residual else gradients

    return run


def rmsnorm_backward(item, copies):
    weight = torch.randn(item["width"], dtype=DTYPES[item["dtype"]])
    sets = activations(item, copies, 1, grad=True)
    return backward(lambda x: F.rms_norm(x, weight.shape, weight, 1e-6), sets, residual=True)


def rope(item, copies):
    cos, sin = torch.randn(item["rows"], 1, HEAD_DIM), torch.randn(item["rows"], 1, HEAD_DIM)
    cos, sin = (t.to(DTYPES[item["dtype"]]) for t in (cos, sin))

    def body(x):
        x = x.view(item["rows"], -1, HEAD_DIM)
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-high, low), dim=-1) * sin

    return each(activations(item, copies, 1), without_grad(body))


def glu(gate, up):
    return F.silu(gate) * up


def swiglu(item, copies):
    return each(activations(item, copies, 2), without_grad(glu))


def swiglu_backward(item, copies):
    return backward(glu, activations(item, copies, 2, grad=True))


def embedding(item, copies):
    weight = torch.randn(EMBEDDED_TOKENS, item["width"], dtype=DTYPES[item["dtype"]])
    sets = [[torch.randint(EMBEDDED_TOKENS, (item["rows"],))] for _ in range(copies)]
    return each(sets, without_grad(lambda ids: F.embedding(ids, weight)))


def embedding_backward(item, copies):
    total = torch.zeros(EMBEDDED_TOKENS, item["width"])
    ids = torch.randint(EMBEDDED_TOKENS, (item["rows"],))
    return each(activations(item, copies, 1), without_grad(lambda dy: total.index_add_(0, ids, dy.float())))


def adamw(item, copies):
    parameters = torch.randn(item["rows"], requires_grad=True)
    parameters.grad = torch.randn(item["rows"])
    optimizer = torch.optim.AdamW([parameters], lr=1e-4, weight_decay=0.01, fused=True)

    def run(_):
        torch.nn.utils.clip_grad_norm_([parameters], 1.0)
        optimizer.step()

    return run


def gae(item, copies):
    shape = (item["rows"] // SEQUENCE, SEQUENCE)
    sets = [[torch.randn(shape), torch.randn(shape)] for _ in range(copies)]

    def body(rewards, values):
        last, reversed_advantages = 0.0, []
        for t in reversed(range(SEQUENCE)):
            following = values[:, t + 1] if t + 1 < SEQUENCE else 0.0
            last = rewards[:, t] + 0.99 * following - values[:, t] + 0.99 * 0.95 * last
            reversed_advantages.append(last)
        advantages = torch.stack(reversed_advantages[::-1], dim=1)
        return advantages, advantages + values

    return each(sets, without_grad(body))


def whiten(item, copies):
    mask = torch.ones(item["rows"])

    def body(x):
        count = mask.sum()
        mean = (x * mask).sum() / count
        variance = ((x - mean) ** 2 * mask).sum() / count
        return (x - mean) * torch.rsqrt(variance + EPS) * mask

    return each(columns(item, copies, 1), without_grad(body))


def ppo(item, copies):
    def body(logprobs, values, old, advantages, weights, ref, old_values, returns):
        ratio = (logprobs - old).clamp(-20, 20).exp()
        policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
        distance = (ref - logprobs).clamp(-20, 20)
        kl = distance.exp() - 1 - distance
        held = old_values + (values - old_values).clamp(-0.2, 0.2)
        value = 0.5 * torch.max((values - returns) ** 2, (held - returns) ** 2)
        loss = (weights * (policy + 0.05 * kl + 0.1 * value)).sum()
        return torch.autograd.grad(loss, (logprobs, values))

    return each(columns(item, copies, 8, grads=2), body)


def verdict_constraint(item, copies):
    labels = torch.randint(2, (item["rows"],))

    def body(positive, negative):
        right = torch.where(labels == 1, positive - negative, negative - positive)
        losses = -F.logsigmoid(right)
        loss = losses[labels == 1].mean() + losses[labels == 0].mean()
        return torch.autograd.grad(loss, (positive, negative))

    return each(columns(item, copies, 2, grads=2), body)


def pairwise(item, copies):
    def body(chosen, rejected):
        return torch.autograd.grad(-F.logsigmoid(chosen - rejected).mean(), (chosen, rejected))

    return each(columns(item, copies, 2, grads=2), body)


def dpo(item, copies):
    def body(chosen, rejected, ref_chosen, ref_rejected):
        delta = (chosen - ref_chosen) - (rejected - ref_rejected)
        return torch.autograd.grad(-F.logsigmoid(0.1 * delta).mean(), (chosen, rejected))

    return each(columns(item, copies, 4, grads=2), body)


def sample(item, copies):
    sets = [[8 * torch.randn(item["rows"], item["width"])] for _ in range(copies)]

    def body(logits):
        logprobs = F.log_softmax(logits, dim=-1)
        tokens = torch.multinomial(logprobs.exp(), 1)
        return tokens, logprobs.gather(1, tokens)

    return each(sets, without_grad(body))


def finite(item, copies):
    """A sum: NaN and infinities show in it, and it reads every element once."""
    return each(activations(item, copies, 1), without_grad(torch.sum))


PREPARE = {
    "copy": copy,
    "rmsnorm": rmsnorm,
    "rmsnorm_backward": rmsnorm_backward,
    "rope": rope,
    "swiglu": swiglu,
    "swiglu_backward": swiglu_backward,
    "embedding": embedding,
    "embedding_backward": embedding_backward,
    "adamw": adamw,
    "gae": gae,
    "whiten": whiten,
    "ppo": ppo,
    "verdict_constraint": verdict_constraint,
    "pairwise": pairwise,
    "dpo": dpo,
    "sample": sample,
    "finite": finite,
}
