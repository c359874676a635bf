"""Files of torch.save: needs torch.

    python test/golden/make_torch.py

torch/mixed.bin: tensors of every dtype, views with strides, tensors that share a storage, an empty one, a scalar, a parameter.
torch/mixed.json: the bytes of each tensor, made contiguous, in base64, with dtype and shape.
"""
import base64, collections, json, os
import torch

HERE = os.path.join(os.path.dirname(__file__), "torch")
os.makedirs(HERE, exist_ok=True)
torch.manual_seed(20261126)

base = torch.randn(6, 8)
state = collections.OrderedDict(
    plain=base,
    transposed=base.t(),
    rows=base[1:5:2],
    columns=base[:, 3:5],
    one=base[2, 3],
    permuted=torch.randn(2, 3, 4).permute(2, 0, 1),
    parameter=torch.nn.Parameter(torch.randn(3, 2)),
    empty=torch.empty(0, 3),
    bf16=torch.randn(5).bfloat16(),
    f16=torch.randn(2, 2).half(),
    f64=torch.randn(3).double(),
    i64=torch.tensor([-1, 2**40]),
    i32=torch.tensor([[7, -7]], dtype=torch.int32),
    i16=torch.tensor([1, -2], dtype=torch.int16),
    i8=torch.tensor([-128, 127], dtype=torch.int8),
    u8=torch.tensor([0, 255], dtype=torch.uint8),
    bool=torch.tensor([True, False]),
)
state["größe"] = torch.ones(1)
state._metadata = collections.OrderedDict([("", {"version": 1})])
torch.save(state, os.path.join(HERE, "mixed.bin"))

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64", torch.int64: "I64",
         torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
expected = {}
for name, tensor in state.items():
    data = tensor.detach().contiguous().clone()
    raw = bytes(data.flatten().view(torch.uint8).tolist()) if data.numel() else b""
    expected[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "bytes": base64.b64encode(raw).decode()}
json.dump(expected, open(os.path.join(HERE, "mixed.json"), "w"), indent=1, ensure_ascii=False)

# The tiny OPT of ../opt as its trunk alone is saved, in two shards: `decoder.…`, without a copy of the tied head.
from safetensors.torch import load_file

weights = load_file(os.path.join(os.path.dirname(__file__), "opt", "model.safetensors"))
names = [name for name in weights if name != "lm_head.weight"]
folder = os.path.join(HERE, "opt")
os.makedirs(folder, exist_ok=True)
index = {}
for i, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
    file = f"pytorch_model-{i + 1:05}-of-00002.bin"
    tensors = collections.OrderedDict((name.removeprefix("model."), weights[name]) for name in part)
    torch.save(tensors, os.path.join(folder, file))
    index |= dict.fromkeys(tensors, file)
json.dump({"metadata": {}, "weight_map": index}, open(os.path.join(folder, "pytorch_model.bin.index.json"), "w"))
