"""Steps of TRL's SFT, DPO and KTO trainers on random weights; the reference is the base without its adapter, in every step."""

import tempfile

from trl_model import Clock, lora, model_and_tokenizer, random_texts, settings

STEPS = 6


def bench(item, setting, seconds):
    from datasets import Dataset

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


def classes(method):
    import trl

    return {
        "sft": lambda: (trl.SFTTrainer, trl.SFTConfig),
        "dpo": lambda: (trl.DPOTrainer, trl.DPOConfig),
        "kto": lambda: (trl.KTOTrainer, trl.KTOConfig),
    }[method]()
