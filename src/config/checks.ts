// Rules between keys of the sections that every method has.
import { newModelConflicts } from '../architectures/table.js';
import { GENERATED, isGenerated } from '../data/generated.js';
import { isShipped } from '../models/base.js';
import type {
  BatchSection,
  Conflict,
  DataConfig,
  FrameConfig,
  MethodSchema,
  ModelConfig,
  PromptConfig,
} from './schema.js';

const NAMED_TEMPLATES = ['auto', 'compact', 'chat'];

/** Conflicts within the sections that every method has, and between them and those of `method`. */
export function sharedConflicts<Config extends FrameConfig>(
  config: Config,
  method: Pick<MethodSchema<Config>, 'sections' | 'neutralClass'>,
): Conflict[] {
  const conflicts = [
    ...modelConflicts(config.model),
    ...adapterConflicts(config),
    ...quantizeConflicts(config),
    ...dataConflicts(config.data),
    ...neutralConflicts(config, method),
    ...likelihoodConflicts(config),
  ];
  for (const section of Object.values(method.sections(config))) {
    const name = nameOf(section, config);
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
  return config.prompt ? [...conflicts, ...promptConflicts(config.prompt)] : conflicts;
}

/** The name under which `config` has a section. */
function nameOf(section: BatchSection, config: FrameConfig): string {
  return (Object.entries(config).find(([, own]) => own === section) as [string, unknown])[0];
}

function modelConflicts(model: ModelConfig): Conflict[] {
  if (typeof model.base === 'string') {
    if (!isShipped(model.base) || model.tokenizer === 'base') return [];
    return [
      {
        path: ['model', 'tokenizer'],
        message: `the ${model.base} base has its own tokenizer: leave model.tokenizer at "base", found ${JSON.stringify(model.tokenizer)}`,
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

function adapterConflicts({ method, model, lora }: FrameConfig): Conflict[] {
  if (model.adapter === undefined)
    return model.adapter_mode === undefined
      ? []
      : [
          {
            path: ['model', 'adapter_mode'],
            message: `model.adapter_mode is ${model.adapter_mode}, and there is no model.adapter; name one, or remove model.adapter_mode`,
          },
        ];
  const path = ['model', 'adapter'];
  if (typeof model.base !== 'string')
    return [
      {
        path,
        message:
          'model.adapter needs the base that it was trained on, and model.base starts from random weights',
      },
    ];
  if (lora === undefined)
    return [
      {
        path,
        message: `method ${method} trains every parameter and goes on from no adapter; remove model.adapter, or merge it into its base with steptrain merge`,
      },
    ];
  if (lora === 'none')
    return [
      {
        path: ['lora'],
        message:
          'lora is none, and model.adapter names an adapter to go on from; remove lora, or merge the adapter into its base with steptrain merge',
      },
    ];
  return [];
}

/** Only a base that no run changes can stay in few bits. */
function quantizeConflicts({ model, lora }: FrameConfig): Conflict[] {
  const { quantize, base } = model;
  if (quantize === 'keep' || quantize === 'none') return [];
  const path = ['model', 'quantize'];
  const refusal = (why: string) => [{ path, message: `model.quantize is ${quantize}, and ${why}` }];
  if (typeof base !== 'string') return refusal('a new model is trained in full; remove it');
  if (lora === undefined || lora === 'none')
    return refusal('every weight is trained; train an adapter (lora), or remove model.quantize');
  if (model.adapter_mode === 'stack')
    return refusal(
      'model.adapter_mode stack adds an adapter to the weights, which the levels of a format would round; set model.quantize: none',
    );
  return [];
}

function dataConflicts(data: DataConfig): Conflict[] {
  const conflicts: Conflict[] = [];
  const files = (['train', 'validation', 'test'] as const).filter((key) => data[key] !== undefined);
  if (isGenerated(data.source)) {
    for (const key of files) {
      conflicts.push({
        path: ['data', key],
        message: `data.source ${JSON.stringify(data.source)} generates its problems and reads no file; remove data.${key} or change data.source`,
      });
    }
  } else if (data.train === undefined) {
    conflicts.push({
      path: ['data', 'train'],
      message: `data.train is missing: give a file with --set data.train=FILE, or choose data.source ${GENERATED.map((name) => JSON.stringify(name)).join(' or ')}`,
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
  if (!Number.isFinite(train + validation + test)) {
    conflicts.push({ path: ['data', 'split'], message: 'the shares of data.split are too large' });
  }
  return conflicts;
}

function neutralConflicts(
  { method, data, eval_verdicts, eval_scores }: FrameConfig,
  { neutralClass }: Pick<MethodSchema, 'neutralClass'>,
): Conflict[] {
  if (data.neutral === 'class' && !neutralClass)
    return [
      {
        path: ['data', 'neutral'],
        message: `data.neutral is class, which only method reward learns, with reward_model.head: classes; for method ${method} choose positive, negative or drop`,
      },
    ];
  if (data.neutral !== 'drop') return [];
  return Object.entries({ eval_verdicts, eval_scores }).flatMap(([section, { neutral } = {}]) =>
    neutral === 'positive' || neutral === 'negative'
      ? [
          {
            path: [section, 'neutral'],
            message: `${section}.neutral is ${neutral}, and data.neutral drop reads no neutral steps; set it to drop, or change data.neutral`,
          },
        ]
      : [],
  );
}

function likelihoodConflicts({ lora, eval_verdicts }: FrameConfig): Conflict[] {
  if (!eval_verdicts?.likelihood || lora !== 'none') return [];
  return [
    {
      path: ['eval_verdicts', 'likelihood'],
      message:
        'eval_verdicts.likelihood asks the base, which lora "none" trains over; set it to false, or train an adapter',
    },
  ];
}

function promptConflicts(prompt: PromptConfig): Conflict[] {
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
