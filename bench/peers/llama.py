"""llama.cpp on random weights of the case's shape: its own llama-batched-bench (STEPTRAIN_LLAMA_BENCH names the binary), or the
package node-llama-cpp (STEPTRAIN_NODE_LLAMA names a directory with it in node_modules). Needs the Python package gguf."""

import functools
import json
import os
import subprocess
import tempfile

import gguf
import numpy as np

THREADS = len(os.sched_getaffinity(0))


def timings(engine, item, dtype, seconds, which):
    run = batched_bench if engine == "llama.cpp" else node_llama
    samples, spent = [], 0.0
    while spent < seconds:
        first, step = run(model_file(json.dumps(item["config"]), dtype), item)
        samples.append(first if which == "first" else step)
        spent += first + step * (item["newTokens"] - 1)
    return samples


def batched_bench(model, item):
    batch, prompt, new_tokens = item["batch"], item["prompt"], item["newTokens"]
    arguments = {
        "-m": model,
        "-c": batch * (prompt + new_tokens),
        "-b": 2048,
        "-ub": 512,
        "-npp": prompt,
        "-ntg": new_tokens,
        "-npl": batch,
        "-t": THREADS,
        "-tb": THREADS,
        "--output-format": "jsonl",
    }
    command = [os.environ["STEPTRAIN_LLAMA_BENCH"], *(str(word) for pair in arguments.items() for word in pair)]
    # Flash attention was the faster way; older versions have a switch, newer ones a value.
    for flash in (["-fa"], ["-fa", "on"]):
        out = subprocess.run([*command, *flash], capture_output=True, text=True)
        lines = [line for line in out.stdout.splitlines() if line.startswith("{")]
        if lines:
            row = json.loads(lines[-1])
            return row["t_pp"], row["t_tg"] / new_tokens
    raise RuntimeError(f"llama-batched-bench: {(out.stderr.strip().splitlines() or ['no output'])[-1]}")


def node_llama(model, item):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node-llama.mjs")
    request = {"model": model, "threads": THREADS, **{name: item[name] for name in ("batch", "prompt", "newTokens")}}
    out = subprocess.run(["node", script, json.dumps(request)], capture_output=True, text=True)
    if out.returncode != 0:
        raise RuntimeError(f"node-llama-cpp: {out.stderr.strip().splitlines()[-1]}")
    row = json.loads(out.stdout.splitlines()[-1])
    return row["first"], row["step"]


@functools.lru_cache
def model_file(config, dtype):
    """A file of random weights; kept while the machine runs."""
    path = os.path.join(tempfile.gettempdir(), f"steptrain-bench-{dtype}.gguf")
    if not os.path.exists(path):
        write_model(path + ".part", json.loads(config), dtype)
        os.rename(path + ".part", path)
    return path


def write_model(path, config, dtype):
    hidden, mlp, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    kv = kv_heads * hidden // heads
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(mlp)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    # Words without meaning: the benchmark feeds ids, but loading wants a vocabulary.
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"<{i}>" for i in range(vocabulary)])
    writer.add_token_types([gguf.TokenType.NORMAL] * vocabulary)
    writer.add_token_merges(["< 0"])
    writer.add_eos_token_id(0)
    random = np.random.default_rng(1)
    kind = {"bf16": gguf.GGMLQuantizationType.BF16, "f16": gguf.GGMLQuantizationType.F16}[dtype]

    def matrix(name, *shape):
        values = random.uniform(-0.035, 0.035, shape).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def vector(name, size, value):
        writer.add_tensor(name, np.full(size, value, np.float32))

    matrix("token_embd.weight", vocabulary, hidden)
    vector("output_norm.weight", hidden, 1)
    for layer in range(config["num_hidden_layers"]):
        block = f"blk.{layer}."
        vector(block + "attn_norm.weight", hidden, 1)
        vector(block + "ffn_norm.weight", hidden, 1)
        for name, rows, columns in (
            ("attn_q", hidden, hidden),
            ("attn_k", kv, hidden),
            ("attn_v", kv, hidden),
            ("attn_output", hidden, hidden),
            ("ffn_gate", mlp, hidden),
            ("ffn_up", mlp, hidden),
            ("ffn_down", hidden, mlp),
        ):
            matrix(f"{block}{name}.weight", rows, columns)
        for name, size in (("attn_q", hidden), ("attn_k", kv), ("attn_v", kv)):
            vector(f"{block}{name}.bias", size, 0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
