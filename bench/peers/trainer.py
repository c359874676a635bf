"""Steps of TRL's SFT, DPO and KTO trainers on random weights; the reference is the base without its adapter, in every step."""

import tempfile

from trl_model import Clock, lora, model_and_tokenizer, random_texts, settings

STEPS = 6


STEP_TOKENS = 8


def bench(item, setting, seconds):
    from datasets import Dataset

    if item["method"] == "prm":
        return bench_prm(item, setting)
    model, tokenizer = model_and_tokenizer(item)
    method, answers = item["method"], item["answers"]
    rows = answers // 2 if method == "dpo" else answers
    prompts = [text + " " for text in random_texts(item, rows * STEPS, item["prompt"])]
    # The trainer adds the end of the text.
    first, second = (random_texts(item, rows * STEPS, item["answer"] - 1) for _ in range(2))
    data = {
        "sft": lambda i: {"completion": first[i]},
        "dpo": lambda i: {"chosen": first[i], "rejected": second[i]},
        "kto": lambda i: {"completion": first[i], "label": i % 2 == 0},
    }[method]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer_of, config_of = classes(method)
        more = {"completion_only_loss": True} if method == "sft" else {"beta": 0.1}
        trainer = trainer_of(
            model=model,
            args=config_of(
                **settings(folder, STEPS),
                per_device_train_batch_size=rows,
                max_length=item["prompt"] + item["answer"],
                learning_rate=1e-5,
                **more,
            ),
            train_dataset=Dataset.from_list([{"prompt": prompt, **data(i)} for i, prompt in enumerate(prompts)]),
            processing_class=tokenizer,
            peft_config=lora(item),
            callbacks=[clock],
        )
        trainer.train()
    return clock.steps()


def bench_prm(item, setting):
    from datasets import Dataset
    from trl.experimental.prm import PRMConfig, PRMTrainer

    autocast = setting == "TRL, autocast"
    model, tokenizer = model_and_tokenizer({**item, "dtype": "f32" if autocast else item["dtype"]}, classes=2)
    rows = item["answers"]
    prompts = random_texts(item, rows * STEPS, item["prompt"])
    count = item["answer"] // STEP_TOKENS
    # Their separator is one word more.
    texts = random_texts(item, rows * STEPS * count, STEP_TOKENS - 1)
    steps = [texts[i * count : (i + 1) * count] for i in range(rows * STEPS)]
    labels = [[(i + step) % 2 == 0 for step in range(count)] for i in range(rows * STEPS)]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = PRMTrainer(
            model=model,
            args=PRMConfig(
                **{**settings(folder, STEPS), "bf16": autocast},
                per_device_train_batch_size=rows,
                step_separator="<eos>",
                max_length=item["prompt"] + item["answer"],
                learning_rate=1e-5,
            ),
            train_dataset=Dataset.from_dict({"prompt": prompts, "completions": steps, "labels": labels}),
            processing_class=tokenizer,
            peft_config=lora(item, "TOKEN_CLS"),
            callbacks=[clock],
        )
        assert {len(row) for row in trainer.train_dataset["input_ids"]} == {item["prompt"] + item["answer"]}
        trainer.train()
    return clock.steps()


def classes(method):
    import trl

    return {
        "sft": lambda: (trl.SFTTrainer, trl.SFTConfig),
        "dpo": lambda: (trl.DPOTrainer, trl.DPOConfig),
        "kto": lambda: (trl.KTOTrainer, trl.KTOConfig),
    }[method]()
