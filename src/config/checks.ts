// What one key alone cannot tell: rules between keys. Each gives the path to point at and the rest of the sentence.
import { newModelConflicts } from '../architectures/table.js';
import type { DataConfig, ModelConfig, RunConfig, StepAmcRunConfig } from './schema.js';

const NAMED_TEMPLATES = ['auto', 'compact', 'chat'];

export interface Conflict {
  readonly path: readonly string[];
  readonly message: string;
}

/** Everything in a complete configuration that contradicts itself. */
export function findConflicts(config: RunConfig): Conflict[] {
  const conflicts = [...modelConflicts(config.model), ...dataConflicts(config.data)];
  for (const [name, section] of trainingSections(config)) {
    for (const key of ['micro_batch_tokens', 'tokens_per_step'] as const) {
      const tokens = section[key];
      if (typeof tokens !== 'number' || tokens >= config.data.max_length) continue;
      conflicts.push({
        path: [name, key],
        message:
          `${name}.${key} (${tokens}) holds no sequence of data.max_length ` +
          `(${config.data.max_length}) tokens; raise it or lower data.max_length`,
      });
    }
  }
  if (config.method !== 'pretrain') conflicts.push(...promptConflicts(config.prompt));
  if (config.method === 'stepamc') conflicts.push(...stepAmcConflicts(config));
  if (config.method === 'pretrain' && config.data.balance !== 'none') {
    conflicts.push({
      path: ['data', 'balance'],
      message: `data.balance ${JSON.stringify(config.data.balance)} balances verdicts, and method pretrain has none; remove it`,
    });
  }
  if (
    config.method === 'pretrain' &&
    config.pretrain.loss_on === 'answers' &&
    config.data.source !== 'arithmetic'
  ) {
    conflicts.push({
      path: ['pretrain', 'loss_on'],
      message: `pretrain.loss_on "answers" needs data.source "arithmetic", whose steps end with their result; found ${JSON.stringify(config.data.source)}`,
    });
  }
  return conflicts;
}

export interface TrainingSection {
  readonly micro_batch_tokens: number | 'auto';
  readonly tokens_per_step?: number;
}

/** The sections that this configuration trains by. */
export function trainingSections(config: RunConfig): (readonly [string, TrainingSection])[] {
  switch (config.method) {
    case 'sft':
      return [['sft', config.sft]];
    case 'pretrain':
      return [['pretrain', config.pretrain]];
    case 'stepamc': {
      const { sft, frn, ppo, dpo, baseline, ablation } = config;
      return [
        ['sft', sft],
        ...(baseline === 'none' ? ([['ppo', ppo]] as const) : []),
        ...(baseline === 'none' && !ablation.no_frn ? ([['frn', frn]] as const) : []),
        ...(baseline === 'dpo' ? ([['dpo', dpo]] as const) : []),
      ];
    }
  }
}

function stepAmcConflicts({ lora, model, constraint, baseline, ablation }: StepAmcRunConfig): Conflict[] {
  const conflicts: Conflict[] = [];
  if (lora === 'none') {
    conflicts.push({
      path: ['lora'],
      message:
        'method "stepamc" holds all its roles on one frozen base and needs lora: give it a section with r and lora_alpha',
    });
  }
  if (typeof model.base !== 'string') {
    conflicts.push({
      path: ['model', 'base'],
      message:
        'method "stepamc" needs a trained base: name one, or pretrain one with method "pretrain" first',
    });
  }
  const { lo, hi, init, mode } = constraint.alpha;
  if (mode === 'learnable_clamped' && !(lo < init && init < hi)) {
    conflicts.push({
      path: ['constraint', 'alpha', 'init'],
      message: `constraint.alpha.init (${init}) must lie between lo (${lo}) and hi (${hi})`,
    });
  }
  if (baseline !== 'none' && (ablation.no_frn || ablation.no_scpn)) {
    conflicts.push({
      path: ['ablation'],
      message: `ablation leaves out parts of StepAMC, and baseline "${baseline}" has none of them; choose one of the two`,
    });
  }
  return conflicts;
}

function modelConflicts(model: ModelConfig): Conflict[] {
  if (typeof model.base === 'string') {
    if (model.base !== 'embedded' || model.tokenizer === 'base') return [];
    return [
      {
        path: ['model', 'tokenizer'],
        message: `the embedded base has its own tokenizer: leave model.tokenizer at "base", found ${JSON.stringify(model.tokenizer)}`,
      },
    ];
  }
  const conflicts: Conflict[] = [];
  if (model.tokenizer === 'base') {
    conflicts.push({
      path: ['model', 'tokenizer'],
      message:
        'a freshly initialised model needs model.tokenizer: "bytes" or a directory with tokenizer.json',
    });
  }
  for (const { key, message } of newModelConflicts(model.base.init))
    conflicts.push({ path: ['model', 'base', 'init', key], message });
  return conflicts;
}

function dataConflicts(data: DataConfig): Conflict[] {
  const conflicts: Conflict[] = [];
  const files = (['train', 'validation', 'test'] as const).filter((key) => data[key] !== undefined);
  if (data.source === 'arithmetic') {
    for (const key of files) {
      conflicts.push({
        path: ['data', key],
        message: `data.source "arithmetic" generates its problems and reads no file; remove data.${key} or change data.source`,
      });
    }
  } else if (data.train === undefined) {
    conflicts.push({
      path: ['data', 'train'],
      message: `data.train is missing: give a file with --set data.train=FILE, or choose data.source "arithmetic"`,
    });
  }
  if (data.arithmetic.max_value < data.arithmetic.max_operand) {
    conflicts.push({
      path: ['data', 'arithmetic', 'max_value'],
      message:
        `data.arithmetic.max_value (${data.arithmetic.max_value}) must be at least max_operand ` +
        `(${data.arithmetic.max_operand})`,
    });
  }
  const [train, validation, test] = data.split;
  if (train === 0) {
    conflicts.push({
      path: ['data', 'split'],
      message: 'data.split leaves no rows for training: its first share is 0',
    });
  }
  if (test === 0 && data.test === undefined) {
    conflicts.push({
      path: ['data', 'split'],
      message:
        'data.split leaves no rows for the final evaluation: its third share is 0 and data.test is not given',
    });
  }
  if (!Number.isFinite(train + validation + test)) {
    conflicts.push({ path: ['data', 'split'], message: 'the shares of data.split are too large' });
  }
  return conflicts;
}

function promptConflicts(prompt: { template: string; pos_word: string; neg_word: string }): Conflict[] {
  const conflicts: Conflict[] = [];
  if (prompt.pos_word.trim() === prompt.neg_word.trim()) {
    conflicts.push({
      path: ['prompt', 'neg_word'],
      message: `prompt.pos_word and prompt.neg_word must differ, found ${JSON.stringify(prompt.pos_word)} for both`,
    });
  }
  for (const place of ['{problem}', '{steps}']) {
    if (NAMED_TEMPLATES.includes(prompt.template) || prompt.template.split(place).length === 2) continue;
    conflicts.push({
      path: ['prompt', 'template'],
      message: `prompt.template must hold ${place} exactly once, found ${prompt.template.split(place).length - 1}`,
    });
  }
  return conflicts;
}
