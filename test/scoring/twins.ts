// Tiny twins of published reward models: trunks of test/golden under heads made of formulas.
import { copyFileSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Change, changedModel } from '../models/changed-model.js';

export const GOLDEN = new URL('../golden/published/', import.meta.url);

/** As make_published.py has it. */
function formula(shape: readonly number[], seed: number) {
  const count = shape.reduce((a, b) => a * b, 1);
  const values = Array.from(
    { length: count },
    (_, i) => (((i * 7919 + seed * 104_729) % 2003) - 1001) / 4004,
  );
  return { shape, values };
}

const WIDTH = 64;
const mlp = (labels: number) => ({
  'score.0.weight': formula([WIDTH, WIDTH], 1),
  'score.0.bias': formula([WIDTH], 2),
  'score.2.weight': formula([labels, WIDTH], 3),
  'score.2.bias': formula([labels], 4),
});
const value = { 'v_head.summary.weight': formula([1, WIDTH], 5), 'v_head.summary.bias': formula([1], 6) };
const classes = { 'score_head.weight': formula([3, WIDTH], 7) };
const own = { auto_map: { AutoModel: 'modeling.Own' } };

export type Twin = readonly [
  kind: string,
  trunk: string,
  tokenizer: 'chatml' | 'llama',
  name: string,
  keys: Readonly<Record<string, unknown>>,
  add: NonNullable<Change['add']>,
];

export const TWINS: readonly Twin[] = [
  [
    'qwen_prm',
    'qwen2',
    'chatml',
    'models/prm',
    { architectures: ['Qwen2ForProcessRewardModel'], ...own },
    mlp(2),
  ],
  [
    'reasonflux',
    'qwen2',
    'chatml',
    'ReasonFlux-PRM-7B',
    { architectures: ['Qwen2ForProcessRewardModel'], ...own },
    mlp(2),
  ],
  ['qwen_rm', 'qwen2', 'chatml', 'models/rm', { architectures: ['Qwen2ForRewardModel'], ...own }, mlp(1)],
  ['skywork', 'qwen2', 'chatml', 'models/prm', { architectures: ['Qwen2ForPrmModel'], ...own }, value],
  [
    'reason_eval_7b',
    'mistral',
    'llama',
    'models/prm',
    { architectures: ['ReasonEval_7B'], score_dimension: 3, use_bias: false },
    classes,
  ],
  [
    'reason_eval_34b',
    'llama3',
    'llama',
    'models/prm',
    { architectures: ['ReasonEval_34B'], score_dimension: 3, use_bias: false },
    classes,
  ],
  ['math_shepherd', 'mistral', 'llama', 'math-shepherd-mistral-7b-prm', {}, {}],
  ['math_psa', 'qwen2', 'chatml', 'models/prm', { _name_or_path: 'openreasoner/Math-psa' }, {}],
  ['rlhflow', 'llama3', 'llama', 'Llama3.1-8B-PRM-Deepseek-Data', {}, {}],
];

/** Its directory, which is removed after the running test. */
export async function twin([kind, trunk, tokenizer, name, keys, add]: Twin): Promise<string> {
  const made = await changedModel(trunk, { config: (config) => ({ ...config, ...keys }), add });
  for (const file of ['tokenizer.json', 'tokenizer_config.json'])
    copyFileSync(new URL(`${tokenizer}/${file}`, GOLDEN), join(made, file));
  if (kind === 'reason_eval_34b') {
    const path = join(made, 'tokenizer_config.json');
    writeFileSync(path, readFileSync(path, 'utf8').replace('"pad_token": "<s>"', '"pad_token": "<|eot|>"'));
  }
  const directory = join(made, '..', name.replace('/', '-'));
  renameSync(made, directory);
  return directory;
}
