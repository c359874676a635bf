"""A step of TRL's GRPO trainer on random weights: sampling, rewards, reference, update. Same prompts' length, group and new tokens."""

import tempfile

from trl_model import Clock, lora, model_and_tokenizer, random_texts, settings


def bench(item, setting, seconds):
    if item["part"] != "all":
        raise ValueError("only the whole step is timed")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = model_and_tokenizer(item)
    prompts, group = item["prompts"], item["generations"]
    steps = max(3, int(item.get("steps", 4)))
    data = Dataset.from_list([{"prompt": text} for text in random_texts(item, prompts * steps, item["prompt"])])

    def reward(completions, **_):
        return [float(i % 2) for i in range(len(completions))]

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            args=GRPOConfig(
                **settings(folder, steps),
                per_device_train_batch_size=prompts * group,
                num_generations=group,
                max_completion_length=item["newTokens"],
                generation_kwargs={"min_new_tokens": item["newTokens"]},
                beta=0.02,
                learning_rate=1e-6,
            ),
            reward_funcs=reward,
            train_dataset=data,
            processing_class=tokenizer,
            peft_config=lora(item),
            callbacks=[clock],
        )
        trainer.train()
    return clock.steps()
