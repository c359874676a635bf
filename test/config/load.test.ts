import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { ConfigError } from '../../src/config/error.js';
import { methodNames } from '../../src/config/method-names.js';
import {
  completeRunConfig,
  formatRunConfig,
  loadRunConfig,
  parseRunConfig,
} from '../../src/methods/config.js';
import type { SftRunConfig } from '../../src/methods/sft/config.js';
import { methods } from '../../src/methods/table.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** As messages list them. */
const METHODS = methodNames(methods).join(' or ');

const BASE = 'method: sft\ndata:\n  source: arithmetic\n';

function parse(content: string, ...settings: string[]) {
  return parseRunConfig(content, { name: 'r.yaml', settings }).config as SftRunConfig;
}

/** The lines of the error about a recipe. */
function complaints(content: string, ...settings: string[]): string[] {
  try {
    parse(content, ...settings);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as Error).message.split('\n');
  }
  throw new Error('the recipe was accepted');
}

describe('a recipe', () => {
  it('is no file of rows or of a problem', () => {
    const path = join(temporaryDirectory(), 'rows.jsonl');
    writeFileSync(path, '{"problem": "p"}\n{"problem": "q"}\n');
    return expect(loadRunConfig(path)).rejects.toThrow(
      `${path} is no recipe; to train on it name it as data: npx steptrain run RECIPE --set data.train=${path}`,
    );
  });

  it('refuses an empty --set of a section', () => {
    expect(complaints(BASE, 'sft=')).toEqual([
      '--set sft=: a section has no value of its own; set a key of it, such as sft.learning_rate=…',
    ]);
  });

  it('gets the defaults of absent keys', () => {
    const config = parse(BASE);
    expect(config.model).toEqual({
      ...{ base: 'embedded', tokenizer: 'base', dtype: 'f32', quantize: 'keep', router_aux_loss_coef: 0 },
    });
    expect(config.lora).toBe('none');
    expect(config.sft).toMatchObject({
      learning_rate: 1e-4,
      num_train_epochs: 3,
      max_steps: -1,
      adam_beta2: 0.999,
    });
    expect(config.data.arithmetic.steps).toBe(4);
    expect(config).not.toHaveProperty('pretrain');
  });

  it('has the sections of its method and no others', () => {
    const config = parse('method: pretrain\ndata: {source: arithmetic}\n');
    expect(Object.keys(config)).toEqual(['method', 'model', 'data', 'pretrain', 'run', 'eval']);
    expect(complaints(`${BASE}pretrain: {}\n`)).toEqual([
      'r.yaml:4:1: section "pretrain" belongs to method pretrain, and the method is sft; remove it',
    ]);
  });

  it('leaves out the sections of its own method where --set names another', () => {
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    const config = parse(
      'method: dpo\ndata: {source: arithmetic}\ndpo: {beta: 0.3}\n',
      'method="kto"',
      'kto.beta=0.4',
    );
    expect(config).toMatchObject({ method: 'kto', kto: { beta: 0.4 } });
    expect(config).not.toHaveProperty('dpo');
    expect(said.mock.calls).toEqual([['method dpo of the recipe is kto by --set: its "dpo" is left out']]);
    said.mockRestore();
  });

  it('may leave sections empty', () => {
    const config = parse('method: sft\nsft:\nlora:\ndata:\n  source: arithmetic\n  arithmetic:\n');
    expect(config.sft.learning_rate).toBe(1e-4);
    expect(config.lora).toBe('none');
    expect(config.data.arithmetic.samples).toBe(2000);
  });

  it('accepts LoRA settings by PEFT’s names, "none" or null', () => {
    expect(parse(`${BASE}lora: {r: 4, target_modules: [q_proj]}`).lora).toMatchObject({
      r: 4,
      lora_alpha: 32,
      target_modules: ['q_proj'],
      use_rslora: false,
    });
    expect(parse(`${BASE}lora: none`).lora).toBe('none');
    expect(parse(`${BASE}lora: null`).lora).toBe('none');
  });

  it('resolves anchors', () => {
    expect(parse(`${BASE}run: {seed: &s 7}\nlora: {r: *s}\n`).lora).toMatchObject({ r: 7 });
  });
});

describe('an unknown key', () => {
  it('is reported with its place and the nearest key', () => {
    expect(complaints(`${BASE}sft:\n  learning_rte: 1e-4\n`)).toEqual([
      'r.yaml:5:3: unknown key "learning_rte" in sft; did you mean "learning_rate"?',
    ]);
    expect(complaints(`${BASE}modle: {}\n`)).toEqual([
      'r.yaml:4:1: unknown key "modle"; did you mean "model"?',
    ]);
    expect(complaints(`${BASE}lora: {rank: 3, lora_aplha: 2}\n`)).toEqual([
      'r.yaml:4:8: unknown key "rank" in lora; did you mean "r"?',
      'r.yaml:4:17: unknown key "lora_aplha" in lora; did you mean "lora_alpha"?',
    ]);
  });

  it.each([
    ['lr', 'learning_rate'],
    ['learningRate', 'learning_rate'],
    ['epochs', 'num_train_epochs'],
    ['max_step', 'max_steps'],
    ['batch_size', 'tokens_per_step'],
    ['flavour', undefined],
  ])('in another spelling gets the nearest key: %s', (key, nearest) => {
    const [line] = complaints(`${BASE}sft:\n  ${key}: 1\n`);
    if (nearest) expect(line).toBe(`r.yaml:5:3: unknown key "${key}" in sft; did you mean "${nearest}"?`);
    else expect(line).toMatch(/^r\.yaml:5:3: unknown key "flavour" in sft; known are learning_rate, /);
  });

  it('of another method is said to be of that, on the command line too', () => {
    expect(complaints(BASE, 'dpo.beta=0.1')).toEqual([
      '--set dpo.beta=0.1: section "dpo" belongs to method dpo, and the method is sft; remove it',
    ]);
  });

  const effectless = (text: string, ...settings: string[]) => {
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    parseRunConfig(text, { name: 'r.yaml', settings: ['model.base=qwen', ...settings] });
    const lines = said.mock.calls.flat().map(String);
    said.mockRestore();
    return lines.filter((line) => line.includes('has no effect'));
  };

  it.each([
    ['grpo', 'reward.length.to: 300', 'reward.length.weight is 0; set it, or leave the key out'],
    ['grpo', 'reward.steps.model: a/prm', 'reward.steps.weight is 0; set it, or leave the key out'],
    ['grpo', 'reward.bound: delta', 'reward.placement is last, and they bound rewards of steps'],
    ['grpo', 'ppo.critic: adapter', 'ppo.algorithm is grpo, which has no critic'],
    ['grpo', 'ppo.vf_coef: 0.5', 'ppo.algorithm is grpo, which has no critic'],
    ['grpo', 'ppo.gamma: 0.9', 'ppo.algorithm is grpo, which discounts nothing'],
    ['grpo', 'ppo.whiten_advantages: false', 'ppo.algorithm is grpo, which does not whiten'],
    ['grpo', 'ppo.group_baseline: true', 'ppo.algorithm is grpo, and it belongs to reinforce_pp'],
    ['grpo', 'ppo.sapo_temperature_pos: 2', 'ppo.algorithm is grpo, and they belong to sapo'],
    ['sapo', 'ppo.cliprange: 0.1', 'ppo.algorithm is sapo, which clips nothing'],
    ['rloo', 'ppo.loss_type: grpo', 'ppo.algorithm is rloo, where every solution counts the same'],
    ['gspo', 'ppo.loss_type: grpo', 'ppo.algorithm is gspo, where every solution counts the same'],
    ['grpo', 'ppo.kl_horizon: 5', 'ppo.kl_target is 0, so that ppo.kl_coef is fixed'],
    ['dapo', 'ppo.kl_estimator: k2', 'ppo.kl_coef is 0, so that nothing is penalised'],
    ['grpo', 'ppo.importance_sampling_mode: token_mask', 'ppo.importance_sampling_correction is off here'],
    ['grpo', 'rollout.max_turns: 3', 'there is no rollout.environment'],
    [
      'method: ppo',
      'ppo.critic_learning_rate: 1',
      'ppo.critic is trunk, whose head learns at ten times ppo.learning_rate',
    ],
    ['stepamc', 'constraint.alpha.hi: 0.7', 'constraint.alpha.mode is fixed'],
    ['stepamc', 'verdict_ppo.wrong_reward: 0', 'rewards come from the reward network'],
    ['s3c', 's3c.wrong_step_weight: 0.5', 's3c.mask is none, so that wrong steps are learned as they are'],
    ['s3c', 'eval_sampling.temperature: 1', 'eval_sampling.num_samples is 0'],
    [
      's3c',
      'eval_sampling.num_samples: 1',
      'one sample beside the greedy solution gives no vote; set it to 0, or to 2 or more',
    ],
    ['dpo', 'dpo.label_smoothing: 0.1', 'dpo.loss_type is hinge'],
    ['sft', 'sft.patience: 3', 'sft.eval_steps is 0, so that there are no evaluations to wait for'],
    ['reward', 'reward_model.outcome_weight: 2', 'it belongs to reward_model.type joint'],
    ['reward', 'reward_model.neutral_score: negative', 'data.neutral is not class'],
    ['reward', 'reward_model.soft_labels: true', 'reward_model.type orm learns outcomes alone'],
    ['reward', 'reward_model.after_error: negative', 'reward_model.type orm learns outcomes alone'],
    ['distill', 'rollout.max_turns: 3', 'method distill learns from whole solutions'],
    ['distill', 'teacher.served_model: x', 'there is no teacher.url'],
  ])('that others leave without effect is warned of: %s, %s', (method, setting, why) => {
    const name = method.replace('method: ', '');
    const data = ['ppo', 'grpo', 'dapo', 'sapo', 'rloo', 'gspo', 's3c', 'distill'].includes(name)
      ? 'word_problems'
      : 'arithmetic';
    const recipe = `method: ${name}\ndata: {source: ${name === 'dpo' ? 'auto, train: x.jsonl' : data}}\n`;
    const beside = {
      s3c: ['s3c.mask=none'],
      dapo: ['ppo.kl_coef=0'],
      dpo: ['dpo.loss_type=hinge'],
      distill: ['teacher.model=word-problems'],
      reward: /orm learns/.test(why) ? ['reward_model.type=orm'] : [],
    };
    const [key, value] = setting.split(': ') as [string, string];
    const set = `${key}=${value}`;
    const settings = [...(beside[name as 's3c'] ?? []), set];
    expect(effectless(recipe, ...settings)).toEqual([`--set ${set}: ${key} has no effect: ${why}`]);
  });

  it('of DPO on verdicts is refused where more than half of the labels would be taken for wrong', () => {
    expect(() =>
      parseRunConfig('method: verdict_dpo\ndata: {source: arithmetic}\n', {
        name: 'r.yaml',
        settings: ['model.base=qwen', 'verdict_dpo.label_smoothing=0.6'],
      }),
    ).toThrow(/verdict_dpo\.label_smoothing expects .*below 0\.5/);
  });

  it('of a recipe of the package is not warned of', () => {
    expect(effectless('extends: quickstart\n', 'sft.eval_steps=0', 'model.base=embedded')).toEqual([]);
  });

  it('that has an effect is not warned of', () => {
    const recipe = 'method: grpo\ndata:\n  source: word_problems\n';
    expect(effectless(recipe, 'reward.length.weight=0.2', 'reward.length.to=300')).toEqual([]);
    const ppo = ['ppo.critic=model', 'ppo.critic_learning_rate=1', 'ppo.gamma=0.9', 'ppo.vf_coef=0.5'];
    expect(effectless('method: ppo\ndata: {source: word_problems}\n', ...ppo)).toEqual([]);
    expect(effectless('method: gspo\ndata: {source: word_problems}\n', 'ppo.loss_type=dr_grpo')).toEqual([]);
  });

  it('of another source is warned of', () => {
    const said = vi.spyOn(console, 'error').mockImplementation(() => {});
    parse(
      `${BASE}  word_problems: {samples: 60}\n`,
      'data.word_problems.levels=[1]',
      'data.prm800k.phase=1',
      'data.neutral=drop',
    );
    const lines = said.mock.calls.flat().join('\n');
    said.mockRestore();
    expect(lines).toContain(
      'r.yaml:4:28: data.word_problems.samples is not read: data.source is "arithmetic"',
    );
    expect(lines).toContain('--set data.word_problems.levels=[1]: data.word_problems.levels is not read');
    expect(lines).toContain('data.prm800k.phase is not read: data.source is "arithmetic"');
    expect(lines).toContain('data.neutral is not read: data.source is "arithmetic"');
    // The complete configuration of a run has every key of them.
    const again = vi.spyOn(console, 'error').mockImplementation(() => {});
    parse(formatRunConfig(parse(BASE)));
    expect(again).not.toHaveBeenCalled();
    again.mockRestore();
  });

  it('in the wrong section is reported with the right one', () => {
    expect(complaints(`${BASE}run:\n  learning_rate: 1\n`)).toEqual([
      'r.yaml:5:3: unknown key "learning_rate" in run; did you mean "sft.learning_rate"?',
    ]);
  });

  it('cannot reach a prototype', () => {
    expect(complaints(`${BASE}__proto__: {polluted: 1}\nconstructor: 1\n`)).toHaveLength(2);
    expect(complaints(BASE, '__proto__.polluted=1')[0]).toMatch(/^--set __proto__\.polluted=1: unknown key/);
    expect(complaints(BASE, 'sft.constructor.polluted=1')[0]).toMatch(/unknown key "constructor" in sft/);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });
});

describe('a value that does not fit', () => {
  it.each([
    [
      'sft: {learning_rate: fast}',
      'r.yaml:4:22: sft.learning_rate expects a number above 0, found the text "fast"',
    ],
    [
      'sft: {learning_rate: 0}',
      'r.yaml:4:22: sft.learning_rate expects a number above 0, found the number 0',
    ],
    [
      'sft: {learning_rate: .nan}',
      'r.yaml:4:22: sft.learning_rate expects a number above 0, found the number NaN',
    ],
    [
      'sft: {learning_rate: .inf}',
      'r.yaml:4:22: sft.learning_rate expects a number above 0, found the number Infinity',
    ],
    [
      'sft: {max_steps: 0}',
      'r.yaml:4:18: sft.max_steps expects -1 (no limit) or a whole number of at least 1, found the number 0',
    ],
    [
      'sft: {max_steps: 1.5}',
      'r.yaml:4:18: sft.max_steps expects -1 (no limit) or a whole number of at least 1, found the number 1.5',
    ],
    [
      'sft: {max_grad_norm: null}',
      'r.yaml:4:22: sft.max_grad_norm expects a number of at least 0, found nothing',
    ],
    [
      'sft: {warmup_ratio: 1}',
      'r.yaml:4:21: sft.warmup_ratio expects a number of at least 0 and below 1, found the number 1',
    ],
    [
      'sft: {lr_scheduler_type: cos}',
      'r.yaml:4:26: sft.lr_scheduler_type expects one of constant, linear or cosine, found the text "cos"',
    ],
    ['sft: [1]', 'r.yaml:4:6: sft expects a section, found the list [1]'],
    [
      'run: {device: gpu}',
      'r.yaml:4:15: run.device expects "auto", "cpu", "cuda" or "cuda:N", found the text "gpu"',
    ],
    [
      'run: {seed: -1}',
      'r.yaml:4:13: run.seed expects a whole number from 0 to 4294967295, found the number -1',
    ],
    [
      'run: {gradient_checkpointing: yes}',
      'r.yaml:4:31: run.gradient_checkpointing expects auto, true or false, found the text "yes"',
    ],
    ['prompt: {pos_word: 1}', 'r.yaml:4:20: prompt.pos_word expects text, found the number 1'],
    [
      'eval_verdicts: {threshold: 2}',
      'r.yaml:4:28: eval_verdicts.threshold expects "auto" or "greedy" or "validation" or a number above 0 and below 1, found the number 2',
    ],
    [
      'eval: {max_samples: few}',
      'r.yaml:4:21: eval.max_samples expects "all" or a whole number of at least 1, found the text "few"',
    ],
    ['lora: lots', 'r.yaml:4:7: lora expects "none" or a section of LoRA settings, found the text "lots"'],
    ['lora: {r: x}', 'r.yaml:4:11: lora.r expects a whole number of at least 1, found the text "x"'],
    [
      'lora: {rank_pattern: {q_proj: 0}}',
      'r.yaml:4:31: lora.rank_pattern.q_proj expects a whole number of at least 1, found the number 0',
    ],
    [
      'lora: {target_modules: [q_proj, 3]}',
      'r.yaml:4:24: lora.target_modules expects "all-linear" or a list of module names, found the list ["q_proj",3]',
    ],
  ])('%s', (line, expected) => {
    expect(complaints(`${BASE}${line}\n`)).toEqual([expected]);
  });

  it('is located through nested sections and missing keys', () => {
    expect(complaints(`${BASE}model:\n  tokenizer: bytes\n  base:\n    init: {hidden_size: big}\n`)).toEqual([
      'r.yaml:7:25: model.base.init.hidden_size expects a whole number of at least 1, found the text "big"',
      'r.yaml:7:5: model.base.init.num_hidden_layers is missing; expected a whole number of at least 1',
      'r.yaml:7:5: model.base.init.num_attention_heads is missing; expected a whole number of at least 1',
      'r.yaml:7:5: model.base.init.intermediate_size is missing; expected a whole number of at least 1',
    ]);
    expect(complaints(`${BASE}lora:\n  alpha_pattern: &p {q_proj: 0.5}\n  rank_pattern: *p\n`)).toEqual([
      'r.yaml:5:30: lora.rank_pattern.q_proj expects a whole number of at least 1, found the number 0.5',
    ]);
    expect(complaints('method: sft\ndata: {source: arithmetic, split: [1, 2]}\n')).toEqual([
      'r.yaml:2:35: data.split expects three shares for training, validation and test, such as [8, 1, 1], found the list [1,2]',
    ]);
    expect(complaints('method: sft\ndata: {source: arithmetic, split: [8, x, 1]}\n')[0]).toMatch(
      /^r\.yaml:2:39: data\.split\.1 expects a number of at least 0, found the text "x"/,
    );
  });

  it('gives a short message for long values and long lists of problems', () => {
    expect(complaints(`${BASE}run: {seed: ${'x'.repeat(5000)}}\n`)[0]!.length).toBeLessThan(200);
    const many = Array.from({ length: 500 }, (_, i) => `k${i}: 1`).join('\n');
    const lines = complaints(`${BASE}${many}`);
    expect(lines).toHaveLength(11);
    expect(lines.at(-1)).toBe('and 490 more problems like these');
  });
});

describe('--set', () => {
  it('replaces values and creates sections; the last setting of a key counts', () => {
    const config = parse(
      `${BASE}lora: none\nsft: {learning_rate: 1}\n`,
      'lora.r=8',
      'sft.learning_rate=5e-4',
      'sft.learning_rate=2e-4',
      'data.split=[6, 2, 2]',
      'run.gradient_checkpointing=true',
      'lora.target_modules=[q_proj, v_proj]',
    );
    expect(config.lora).toMatchObject({ r: 8, target_modules: ['q_proj', 'v_proj'] });
    expect(config.sft.learning_rate).toBe(2e-4);
    expect(config.data.split).toEqual([6, 2, 2]);
    expect(config.run.gradient_checkpointing).toBe(true);
  });

  it('keeps text as typed', () => {
    const typed = parse(
      'method: sft',
      'data.train=2024',
      'prompt.pos_word=-',
      'prompt.neg_word=1',
      'model.base=[odd',
      'run.output_dir=a: b # c',
    );
    expect(typed.data.train).toBe('2024');
    expect(typed.prompt).toMatchObject({ pos_word: '-', neg_word: '1' });
    expect(typed.model.base).toBe('[odd');
    expect(typed.run.output_dir).toBe('a: b # c');
    expect(parse('method: sft', 'data.train="my file"').data.train).toBe('my file');
  });

  it('can set the method', () => {
    expect(parse('data: {source: arithmetic}', 'method=pretrain').method).toBe('pretrain');
    expect(complaints('method: sft', 'method=xyzzy')).toEqual([
      `--set method=xyzzy: expected ${METHODS} as method, found the text "xyzzy"`,
    ]);
  });

  it('is the place of a problem even if the file conflicts with it', () => {
    expect(complaints(`${BASE}sft: {learning_rate: 1}`, 'sft.learning_rate=x')).toEqual([
      '--set sft.learning_rate=x: sft.learning_rate expects a number above 0, found the text "x"',
    ]);
    expect(complaints(`${BASE}`, 'sft.learning_rte=1')).toEqual([
      '--set sft.learning_rte=1: unknown key "learning_rte" in sft; did you mean "learning_rate"?',
    ]);
    expect(complaints(`${BASE}`, 'lora={rr: 3}')).toEqual([
      '--set lora={rr: 3}: unknown key "rr" in lora; did you mean "r"?',
    ]);
  });

  it.each(['sft.learning_rate', '=3', 'sft.=3', '.x=3'])('needs a key and a value: %s', (setting) => {
    expect(complaints(BASE, setting)).toEqual([
      `--set ${setting}: expected section.key=value, such as sft.learning_rate=1e-4`,
    ]);
  });
});

describe('text that is not a recipe', () => {
  it.each([
    ['', `r.yaml: method is missing; expected ${METHODS}`],
    ['methd: sft', 'r.yaml:1:1: unknown key "methd"; did you mean "method"?'],
    ['method: stf', `r.yaml:1:9: expected ${METHODS} as method, found the text "stf"; did you mean "sft"?`],
    ['method:', `r.yaml:1:8: expected ${METHODS} as method, found nothing`],
    ['- a', 'r.yaml:1:1: a recipe is a mapping of sections such as "sft:", found a list'],
    ['hello', 'r.yaml:1:1: a recipe is a mapping of sections such as "sft:", found a single value'],
    ['method: sft\nmethod: sft', 'r.yaml:2:1: the key "method" stands here a second time'],
    ['method: sft\nsft:\n\ta: 1', 'r.yaml:3:1: this is not valid YAML: Tabs are not allowed as indentation'],
    [
      'method: !!js/function sft',
      'r.yaml:1:9: this is not valid YAML: Unresolved tag: tag:yaml.org,2002:js/function',
    ],
  ])('is refused: %j', (content, expected) => {
    expect(complaints(content)).toEqual([expected]);
  });

  it('is refused as a file, each with one sentence', async () => {
    const folder = temporaryDirectory();
    const refusal = (file: string) => loadRunConfig(file).catch((error: Error) => error.message);
    expect(await refusal(join(folder, 'none.yaml'))).toBe(
      `the recipe ${join(folder, 'none.yaml')} cannot be read: no such file or directory`,
    );
    expect(await refusal(folder)).toMatch(/cannot be read: it is a directory$/);
    const binary = join(folder, 'binary.yaml');
    writeFileSync(binary, Uint8Array.of(0x6d, 0xff, 0xfe));
    expect(await refusal(binary)).toBe(`${binary}: a recipe is YAML in UTF-8, this file is not UTF-8 text`);
    const large = join(folder, 'large.yaml');
    writeFileSync(large, Buffer.alloc(2 << 20, 0x20));
    expect(await refusal(large)).toMatch(/larger than 1 MiB$/);
    const good = join(folder, 'good.yaml');
    writeFileSync(good, `\ufeff${BASE}`);
    expect((await loadRunConfig(good)).config.method).toBe('sft');
  });
});

describe('sizes of batches that are nowhere written', () => {
  const sizes = (settings: string[], text = BASE) => {
    const { micro_batch_tokens, tokens_per_step } = parse(text, ...settings).sft;
    return { micro_batch_tokens, tokens_per_step };
  };

  it('hold the longest sequence', () => {
    expect(sizes([])).toEqual({ micro_batch_tokens: 2048, tokens_per_step: 8192 });
    expect(sizes(['data.max_length=4096'])).toEqual({ micro_batch_tokens: 4096, tokens_per_step: 8192 });
    expect(sizes(['data.max_length=16384'])).toEqual({ micro_batch_tokens: 16_384, tokens_per_step: 16_384 });
    expect(sizes(['data.max_length=16384', 'optimizer.micro_batch_tokens=auto'])).toEqual({
      micro_batch_tokens: 'auto',
      tokens_per_step: 16_384,
    });
  });

  it('are not raised where they are written, in the section of the stage or in optimizer', () => {
    for (const text of [
      `${BASE}optimizer: { micro_batch_tokens: 2048 }\n`,
      `${BASE}sft: { micro_batch_tokens: 2048 }\n`,
    ])
      expect(() => sizes(['data.max_length=4096'], text)).toThrow(
        /micro_batch_tokens \(2048\) holds no sequence/,
      );
  });
});

describe('rules between keys', () => {
  const fresh =
    'model:\n  tokenizer: bytes\n  base:\n    init: {hidden_size: 64, intermediate_size: 128, num_hidden_layers: 1, num_attention_heads: 3}\n';

  it.each([
    [
      'method: sft',
      [],
      /^r\.yaml: data\.train is missing: set it to a file \(--set data\.train=FILE of a command\)/,
    ],
    [BASE, ['data.test=x'], /^--set data\.test=x: data\.source "arithmetic" generates/],
    [
      BASE,
      ['sft.micro_batch_tokens=100'],
      /^--set .*: sft\.micro_batch_tokens \(100\) holds no sequence of data\.max_length \(1024\)/,
    ],
    [BASE, ['sft.tokens_per_step=100'], /sft\.tokens_per_step \(100\) holds no sequence/],
    [BASE, ['prompt.neg_word=+ '], /pos_word and prompt\.neg_word must differ/],
    [
      BASE,
      ['prompt.template=compakt'],
      /prompt\.template: there is no template "compakt"; did you mean compact\? Expected auto, chat, compact, trl, turns, or a text with \{problem\} and \{steps\}$/,
    ],
    [
      BASE,
      ['prompt.step_separator=;'],
      /prompt\.step_separator is ";", and prompt\.template "\w+" ends steps by itself; set prompt\.template: trl$/,
    ],
    [BASE, ['prompt.template={problem} only'], /must hold \{steps\} exactly once, found 0$/],
    [BASE, ['prompt.template={problem}{problem}{steps}'], /must hold \{problem\} exactly once, found 2$/],
    [BASE, ['data.split=[0,1,1]'], /no rows for training/],
    [BASE, ['model.tokenizer=bytes'], /the embedded base has its own tokenizer/],
    [BASE + fresh, [], /^r\.yaml:7:\d+: hidden_size \(64\) must be a multiple of num_attention_heads \(3\)/],
    [
      BASE + fresh,
      ['model.base.init.num_attention_heads=4', 'model.base.init.num_key_value_heads=3'],
      /\(4\) must be a multiple of num_key_value_heads \(3\)/,
    ],
    [
      BASE + fresh,
      ['model.base.init.num_attention_heads=4', 'model.base.init.sliding_window=3'],
      /is for model_type "mistral", found "qwen2"/,
    ],
    [
      BASE + fresh,
      ['model.base.init.num_attention_heads=4', 'model.tokenizer=base'],
      /freshly initialised model needs model\.tokenizer/,
    ],
    ['method: pretrain\ndata: {train: x}', [], /loss_on "answers" needs data\.source "arithmetic"/],
  ] as const)('%j %j', (content, settings, expected) => {
    const lines = complaints(content, ...settings);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(expected);
  });
});

describe('a configuration from a program', () => {
  it('gets the same defaults and is not changed', () => {
    const input = { method: 'sft', data: { source: 'arithmetic' }, lora: null } as const;
    const frozen = Object.freeze(structuredClone(input));
    expect(completeRunConfig(frozen)).toEqual(parse(BASE));
    expect(frozen).toEqual(input);
  });

  it('may extend a recipe of the package or a file, as a recipe may', () => {
    const own = { lora: { r: 8 }, data: { train: 'rows.jsonl' } };
    const text = 'extends: my_steps\nlora: {r: 8}\ndata: {train: rows.jsonl}\n';
    expect(completeRunConfig({ extends: 'my_steps', ...own })).toEqual(parse(text));
    expect(completeRunConfig({ extends: 'recipes/my_steps.yaml', ...own })).toEqual(parse(text));
    expect(completeRunConfig({ extends: undefined, method: 'sft', data: { source: 'arithmetic' } })).toEqual(
      completeRunConfig({ method: 'sft', data: { source: 'arithmetic' } }),
    );
  });

  it('that extends nothing is told what was meant', () => {
    expect(() => completeRunConfig({ extends: 'my_step' })).toThrow(
      `config: extends names my_step, but there is no such file in ${process.cwd()} and no recipe of that name in the package; ` +
        'did you mean my_steps?',
    );
    expect(() => completeRunConfig('my_steps')).toThrow(
      'a configuration is an object with sections, found the text "my_steps"; { extends: \'my_steps\' } is the recipe of that name',
    );
  });

  it('is refused with the same sentences', () => {
    expect(() =>
      completeRunConfig({ method: 'sft', data: { source: 'arithmetic' }, sft: { max_step: 3 } }),
    ).toThrow('config: unknown key "max_step" in sft; did you mean "max_steps"?');
    expect(() => completeRunConfig(3)).toThrow(
      'a configuration is an object with sections, found the number 3',
    );
  });
});
