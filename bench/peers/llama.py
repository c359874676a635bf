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
    config = json.loads(config)
    path = os.path.join(tempfile.gettempdir(), f"steptrain-bench-{config['model_type']}-{dtype}.gguf")
    if not os.path.exists(path):
        write_model(path + ".part", config, dtype)
        os.rename(path + ".part", path)
    return path


def write_model(path, config, dtype):
    recurrent = config["model_type"] == "qwen3_5_text"
    hidden, mlp, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", hidden // heads)
    architecture = "qwen35" if recurrent else "qwen2"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(mlp)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"] if recurrent else config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if recurrent:
        recurrent_keys(writer, config, head_dim)
    # Words without meaning: the benchmark feeds ids, but loading wants a vocabulary.
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(architecture)
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
        vector(block + ("post_attention_norm.weight" if recurrent else "ffn_norm.weight"), hidden, 1)
        for name, rows, columns in (("ffn_gate", mlp, hidden), ("ffn_up", mlp, hidden), ("ffn_down", hidden, mlp)):
            matrix(f"{block}{name}.weight", rows, columns)
        if recurrent and config["layer_types"][layer] == "linear_attention":
            delta_rule(block, config, matrix, vector, writer, random)
            continue
        # Qwen3.5's queries have a gate beside them.
        for name, rows, columns in (
            ("attn_q", (2 if recurrent else 1) * heads * head_dim, hidden),
            ("attn_k", kv_heads * head_dim, hidden),
            ("attn_v", kv_heads * head_dim, hidden),
            ("attn_output", hidden, heads * head_dim),
        ):
            matrix(f"{block}{name}.weight", rows, columns)
        if recurrent:
            vector(block + "attn_q_norm.weight", head_dim, 1)
            vector(block + "attn_k_norm.weight", head_dim, 1)
        else:
            for name, size in (("attn_q", hidden), ("attn_k", kv_heads * head_dim), ("attn_v", kv_heads * head_dim)):
                vector(f"{block}{name}.bias", size, 0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def recurrent_keys(writer, config, head_dim):
    rotated = int(head_dim * config["rope_parameters"]["partial_rotary_factor"])
    pairs = rotated // 2
    writer.add_array("qwen35.rope.dimension_sections", [-(-pairs // 3), -(-(pairs - 1) // 3), pairs // 3, 0])
    heads, size = config["linear_num_value_heads"], config["linear_value_head_dim"]
    for key, value in {
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.dimension_count": rotated,
        "full_attention_interval": 1 + config["layer_types"].index("full_attention"),
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * size,
    }.items():
        writer.add_uint32(f"qwen35.{key}", value)


def delta_rule(block, config, matrix, vector, writer, random):
    hidden, taps = config["hidden_size"], config["linear_conv_kernel_dim"]
    heads, size = config["linear_num_value_heads"], config["linear_value_head_dim"]
    inner = heads * size
    joint = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"] + inner
    matrix(f"{block}attn_qkv.weight", joint, hidden)
    matrix(f"{block}attn_gate.weight", inner, hidden)
    matrix(f"{block}ssm_alpha.weight", heads, hidden)
    matrix(f"{block}ssm_beta.weight", heads, hidden)
    matrix(f"{block}ssm_out.weight", hidden, inner)
    writer.add_tensor(f"{block}ssm_conv1d.weight", random.uniform(-0.3, 0.3, (joint, taps)).astype(np.float32))
    vector(f"{block}ssm_a", heads, -1)
    vector(f"{block}ssm_dt.bias", heads, 0)
    vector(f"{block}ssm_norm.weight", size, 1)
