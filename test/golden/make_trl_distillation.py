"""Losses and gradients of TRL's distillation of the tiny qwen2 model beside this file from the tiny mistral one, for given samples: its
DistillationTrainer (all tokens), GKDTrainer's loss on the same logits, and its ServerDistillationTrainer (the sampled token, from a server):
writes trl_distillation.json.

    python make_trl_distillation.py        # torch 2.13, transformers 5.24, trl 1.16
"""
import json, math, pathlib, tempfile, warnings
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
import trl, trl.generation.vllm_client
from trl import DistillationConfig, DistillationTrainer
from trl.experimental.gkd import GKDTrainer
from trl.experimental.server_distillation import ServerDistillationConfig, ServerDistillationTrainer

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
here = pathlib.Path(__file__).resolve().parent
VOCAB, PAD, WIDTH = 320, 1, 4
words = {"<unk>": 0, "<pad>": PAD, "<eos>": 2, **{f"t{i}": i for i in range(3, VOCAB)}}
raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", pad_token="<pad>", unk_token="<unk>")

generator = torch.Generator().manual_seed(23)
draw = lambda n: [int(i) for i in torch.randint(3, VOCAB, (n,), generator=generator)]
# Prompts of one length, so that nothing depends on how they are padded.
PROMPTS = [draw(WIDTH), draw(WIDTH)]
SAMPLES = [{"prompt": p, "tokens": draw(n)} for p, n in [(0, 5), (0, 3), (1, 6), (1, 1)]]

def load(name):
    return AutoModelForCausalLM.from_pretrained(here / name, dtype=torch.float32, attn_implementation="eager")

def padded(rows, value):
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])

mask = padded([[1] * len(s["tokens"]) for s in SAMPLES], 0)
inputs = {
    "prompt_ids": torch.tensor([PROMPTS[s["prompt"]] for s in SAMPLES]),
    "prompt_mask": torch.ones(len(SAMPLES), WIDTH, dtype=torch.long),
    "completion_ids": padded([s["tokens"] for s in SAMPLES], PAD),
    "completion_mask": mask,
    "num_items_in_batch": mask.sum().float(),
}
rows = Dataset.from_list([{"prompt": "t3"}] * 4)
common = dict(report_to=[], use_cpu=True, gradient_checkpointing=False, bf16=False, output_dir=tempfile.mkdtemp(),
              dataloader_pin_memory=False, per_device_train_batch_size=4, max_completion_length=8)

def measure(trainer):
    trainer.model.train(); trainer.model.zero_grad()
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.compute_loss(trainer.model, dict(inputs))
    loss.backward()
    norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in trainer.model.parameters() if p.grad is not None))
    return {"loss": float(loss.detach()), "grad_norm": norm}

def logits(model):
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=torch.cat([inputs["prompt_mask"], mask], 1)).logits[:, WIDTH - 1 : -1]

labels = torch.where(mask.bool(), inputs["completion_ids"], -100)
cases = []
for beta in (1.0, 0.0, 0.5, 0.3):
    for temperature in (1.0, 0.7):
        trainer = DistillationTrainer(model=load("qwen2"), teacher_model=load("mistral"), processing_class=tokenizer, train_dataset=rows,
                                      args=DistillationConfig(**common, beta=beta, temperature=temperature))
        gkd = GKDTrainer.generalized_jsd_loss(logits(load("qwen2")), logits(load("mistral")), labels, beta=beta, temperature=temperature)
        case = {"beta": beta, "temperature": temperature, **measure(trainer), "gkd": float(gkd),
                "entropy": trainer._metrics["train"]["entropy"][-1]}
        assert abs(case["gkd"] - case["loss"]) < 1e-4, case
        cases.append(case)

teacher = load("mistral")

class Server:
    """What TRL's client of a vLLM gives for sequences of tokens, computed by the teacher here."""
    def __init__(self, **_): pass
    def get_sequence_logprobs(self, sequences, prompt_lengths, top_logprobs, temperature):
        found = {"logprobs": [], "logprob_token_ids": [], "actual_logprobs": []}
        for ids, begin in zip(sequences, prompt_lengths):
            with torch.no_grad():
                all = (teacher(torch.tensor([ids])).logits[0, begin - 1 : -1] / temperature).log_softmax(-1)
            top = all.topk(top_logprobs)
            found["logprobs"].append(top.values.tolist()); found["logprob_token_ids"].append(top.indices.tolist())
            found["actual_logprobs"].append(all.gather(1, torch.tensor(ids[begin:])[:, None]).tolist())
        return found

trl.generation.vllm_client.VLLMClient = Server
served = ServerDistillationTrainer(model=load("qwen2"), processing_class=tokenizer, train_dataset=rows,
                                   args=ServerDistillationConfig(**common, beta=1.0, teacher_model_server_url="http://127.0.0.1:1"))
sampled = measure(served)
for sample in SAMPLES:
    ids = PROMPTS[sample["prompt"]] + sample["tokens"]
    given = Server().get_sequence_logprobs([ids], [WIDTH], 1, 1.0)["actual_logprobs"][0]
    sample["teacher"] = [value for value, in given]
for case in cases: print(case)
print("sampled", sampled)
made = {"trl": trl.__version__, "prompts": PROMPTS, "samples": SAMPLES, "cases": cases, "sampled": sampled}
(here / "trl_distillation.json").write_text(json.dumps(made, indent=1) + "\n")
