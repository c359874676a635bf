"""A step of TRL's GRPO trainer on random weights: sampling, rewards, reference, update. Same prompts' length, group and new tokens.

Parts of it are written out with PEFT: samples by transformers' generate, and updates of GRPO, and of PPO with a critic that is an
adapter of its own.
"""

import tempfile

from trl_model import Clock, lora, model_and_tokenizer, random_texts, settings


def bench(item, setting, seconds):
    if item["part"] == "rollout":
        return bench_sampling(item, seconds)
    if item["part"] != "all":
        return bench_update(item, seconds, with_critic=item["part"] == "update with critic")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    autocast = setting == "TRL, autocast"
    model, tokenizer = model_and_tokenizer({**item, "dtype": "f32" if autocast else item["dtype"]})
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
                **{**settings(folder, steps), "bf16": autocast},
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


def bench_sampling(item, seconds):
    import torch
    from peft import get_peft_model
    from stopwatch import stopwatch

    model, tokenizer = model_and_tokenizer(item)
    model = get_peft_model(model, lora(item)).eval()
    prompts = torch.randint(item["config"]["vocab_size"] - 2, (item["prompts"], item["prompt"]))

    def run(_):
        with torch.no_grad():
            model.generate(
                input_ids=prompts,
                attention_mask=torch.ones_like(prompts),
                do_sample=True,
                top_k=0,
                num_return_sequences=item["generations"],
                min_new_tokens=item["newTokens"],
                max_new_tokens=item["newTokens"],
                pad_token_id=tokenizer.pad_token_id,
            )

    return stopwatch(seconds, run)


def bench_update(item, seconds, with_critic):
    import torch
    from peft import get_peft_model
    from stopwatch import stopwatch

    model, _ = model_and_tokenizer(item)
    model = get_peft_model(model, lora(item))
    policy = [each for each in model.parameters() if each.requires_grad]
    critic, head = [], torch.nn.Linear(item["config"]["hidden_size"], 1)
    if with_critic:
        model.add_adapter("critic", lora(item))
        critic = [each for name, each in model.named_parameters() if ".critic." in name] + list(head.parameters())
    groups = [each for each in (policy, critic) if each]
    for each in groups:
        for parameter in each:
            parameter.requires_grad_(True)
    optimizers = [torch.optim.AdamW(each, lr=1e-6, weight_decay=0.0, fused=True) for each in groups]
    rows, prompt, new = item["prompts"] * item["generations"], item["prompt"], item["newTokens"]
    ids = torch.randint(item["config"]["vocab_size"] - 2, (rows, prompt + new))
    answers = ids[:, prompt:]
    advantages, returns, old_values = (torch.randn(rows, new) for _ in range(3))

    def logprobs():
        # The logits of the answers alone, as TRL asks for them.
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=new + 1).logits[:, :-1]
        return torch.log_softmax(logits, -1).gather(-1, answers[..., None])[..., 0]

    with torch.no_grad():
        old, reference = logprobs(), logprobs()

    def run(_):
        model.set_adapter("default")
        now = logprobs()
        ratio = torch.exp(now - old)
        loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
        if not with_critic:
            # GRPO has the divergence from the reference in its loss, PPO in its rewards.
            apart = reference - now
            loss = loss + 0.02 * (torch.exp(apart) - apart - 1).mean()
        loss.backward()
        if with_critic:
            model.set_adapter("critic")
            hidden = model.base_model.model.model(input_ids=ids, use_cache=False).last_hidden_state
            values = head(hidden[:, prompt - 1 : -1])[..., 0]
            near = old_values + (values - old_values).clamp(-0.2, 0.2)
            (0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2).mean()).backward()
        for each, optimizer in zip(groups, optimizers):
            torch.nn.utils.clip_grad_norm_(each, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return stopwatch(seconds, run)
