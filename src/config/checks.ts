// Rules between keys of the sections that every method has.
import { newModelConflicts } from '../architectures/table.js';
import { GENERATED, GENERATORS, generatorOf, isGenerated } from '../data/generated.js';
import { trainingFiles } from '../data/training-files.js';
import { TRL_TEMPLATE, unknownTemplate, VERDICT_TEMPLATES } from '../data/verdict.js';
import { isShipped } from '../models/base.js';
import {
  type BatchSection,
  type Conflict,
  conflict,
  type DataConfig,
  type FrameConfig,
  type MethodSchema,
  type ModelConfig,
  type PromptConfig,
  withoutEffect,
} from './schema.js';
import { isSection } from './values.js';

/** Conflicts within the sections that every method has, and between them and those of `method`. */
export function* sharedConflicts<Config extends FrameConfig>(
  config: Config,
  method: Pick<MethodSchema<Config>, 'sections' | 'neutralClass'>,
): Generator<Conflict> {
  yield* modelConflicts(config.model);
  yield* adapterConflicts(config);
  yield* quantizeConflicts(config);
  yield* dataConflicts(config.data);
  yield* neutralConflicts(config, method);
  if (config.eval_verdicts?.likelihood && config.lora === 'none')
    yield conflict(
      'eval_verdicts.likelihood',
      'eval_verdicts.likelihood asks the base, which lora "none" trains over; set it to false, or train an adapter',
    );
  for (const section of Object.values(method.sections(config))) {
    const name = nameOf(section, config);
    for (const key of ['micro_batch_tokens', 'tokens_per_step'] as const) {
      const tokens = section[key];
      if (typeof tokens === 'number' && tokens < config.data.max_length)
        yield conflict(
          `${name}.${key}`,
          `${name}.${key} (${tokens}) holds no sequence of data.max_length ` +
            `(${config.data.max_length}) tokens; raise it or lower data.max_length`,
        );
    }
  }
  if (config.prompt) yield* promptConflicts(config.prompt);
}

/** Yields what waits for evaluations that a stage does not have. */
export function* idlePatience<Config extends FrameConfig>(
  config: Config,
  method: Pick<MethodSchema<Config>, 'sections'>,
): Generator<Conflict> {
  for (const section of Object.values(method.sections(config))) {
    const name = nameOf(section, config);
    if (section.eval_steps === 0)
      yield* withoutEffect(name, section, {
        keys: ['patience'],
        defaults: { ...section, patience: 0 },
        why: `${name}.eval_steps is 0, so that there are no evaluations to wait for`,
      });
  }
}

/** The name under which `config` has a section. */
export function nameOf(section: BatchSection, config: FrameConfig): string {
  return (Object.entries(config).find(([, own]) => own === section) as [string, unknown])[0];
}

function* modelConflicts({ base, tokenizer }: ModelConfig): Generator<Conflict> {
  if (typeof base === 'string') {
    if (isShipped(base) && tokenizer !== 'base')
      yield conflict(
        'model.tokenizer',
        `the ${base} base has its own tokenizer: leave model.tokenizer at "base", found ${JSON.stringify(tokenizer)}`,
      );
    return;
  }
  if (tokenizer === 'base')
    yield conflict(
      'model.tokenizer',
      'a freshly initialised model needs model.tokenizer: "bytes" or a directory with tokenizer.json',
    );
  for (const { key, message } of newModelConflicts(base.init))
    yield conflict(`model.base.init.${key}`, message);
}

function* adapterConflicts({ method, model, lora }: FrameConfig): Generator<Conflict> {
  if (model.adapter === undefined) {
    if (model.adapter_mode !== undefined)
      yield conflict(
        'model.adapter_mode',
        `model.adapter_mode is ${model.adapter_mode}, and there is no model.adapter; name one, or remove model.adapter_mode`,
      );
  } else if (typeof model.base !== 'string')
    yield conflict(
      'model.adapter',
      'model.adapter needs the base that it was trained on, and model.base starts from random weights',
    );
  else if (lora === undefined)
    yield conflict(
      'model.adapter',
      `method ${method} trains every parameter and goes on from no adapter; remove model.adapter, or merge it into its base with steptrain merge`,
    );
  else if (lora === 'none')
    yield conflict(
      'lora',
      'lora is none, and model.adapter names an adapter to go on from; remove lora, or merge the adapter into its base with steptrain merge',
    );
}

/** Conflicts of quantisation: only a base that no run changes can stay in few bits. */
function* quantizeConflicts({ model, lora }: FrameConfig): Generator<Conflict> {
  const { quantize, base } = model;
  if (quantize === 'keep' || quantize === 'none') return;
  const refusal = (why: string) => conflict('model.quantize', `model.quantize is ${quantize}, and ${why}`);
  if (typeof base !== 'string') yield refusal('a new model is trained in full; remove it');
  else if (lora === undefined || lora === 'none')
    yield refusal('every weight is trained; train an adapter (lora), or remove model.quantize');
  else if (model.adapter_mode === 'stack')
    yield refusal(
      'model.adapter_mode stack adds an adapter to the weights, which the levels of a format would round; set model.quantize: none',
    );
}

/**
 * Settings that belong to other sources of data than that of the run.
 *
 * @param isDefault whether a key of `data` has the value that it has anyway, as in the complete configuration of a run
 */
export function* otherProblems(
  written: unknown,
  { source }: DataConfig,
  isDefault: (path: readonly string[]) => boolean,
): Generator<Conflict> {
  const sections = isSection(written) ? written : {};
  const read = source === 'auto' ? 'prm800k' : (generatorOf(source) ?? source);
  const paths = [...GENERATORS, 'prm800k']
    .filter((name) => name !== read)
    .flatMap((name) => {
      const section = sections[name];
      return isSection(section) ? Object.keys(section).map((key) => [name, key]) : [];
    });
  const ofFiles = ['columns', 'neutral', 'label_threshold', 'on_bad_row'].filter((key) => key in sections);
  if (isGenerated(source)) paths.push(...ofFiles.map((key) => [key]));
  for (const path of paths) {
    const key = ['data', ...path].join('.');
    if (!isDefault(path)) yield conflict(key, `${key} is not read: data.source is ${JSON.stringify(source)}`);
  }
}

function* dataConflicts(data: DataConfig): Generator<Conflict> {
  const source = JSON.stringify(data.source);
  if (isGenerated(data.source)) {
    for (const key of ['train', 'validation', 'test'] as const)
      if (data[key] !== undefined)
        yield conflict(
          `data.${key}`,
          `data.source ${source} generates its problems and reads no file; remove data.${key} or change data.source`,
        );
  } else if (data.train === undefined)
    yield conflict(
      'data.train',
      `data.train is missing: set it to a file (--set data.train=FILE of a command), or choose data.source ${GENERATED.map((name) => JSON.stringify(name)).join(' or ')}`,
    );
  const files = trainingFiles(data.train);
  for (const [i, { path, weight, share }] of files.entries())
    if (weight !== undefined && share !== undefined)
      yield conflict(`data.train.${i}`, `data.train: ${path} has a weight and a share; keep one of them`);
  const shared = files.filter(({ share }) => share !== undefined);
  const alone = files.find(({ share }) => share === undefined);
  if (shared.length === 1 && files.length === 1)
    yield conflict(
      'data.train',
      `data.train: ${shared[0]?.path} has a share and is the only file; add the others, or give it a weight: 0.3 keeps three of ten`,
    );
  if (shared.length > 0 && alone)
    yield conflict(
      'data.train',
      `data.train: ${shared[0]?.path} has a share and ${alone.path} has none; give every file a share, or none`,
    );
  if (data.on_overlap === 'skip' && data.validation === undefined && data.test === undefined)
    yield conflict(
      'data.on_overlap',
      'data.on_overlap is skip, and neither data.validation nor data.test names a file; data.split keeps the steps of a problem ' +
        'together already: remove data.on_overlap',
    );
  const { max_value, max_operand } = data.arithmetic;
  if (max_value < max_operand)
    yield conflict(
      'data.arithmetic.max_value',
      `data.arithmetic.max_value (${max_value}) must be at least max_operand (${max_operand})`,
    );
  const [train, validation, test] = data.split;
  if (train === 0)
    yield conflict('data.split', 'data.split leaves no rows for training: its first share is 0');
  if (!Number.isFinite(train + validation + test))
    yield conflict('data.split', 'the shares of data.split are too large');
}

function* neutralConflicts(
  { method, data, eval_verdicts, eval_scores }: FrameConfig,
  { neutralClass }: Pick<MethodSchema, 'neutralClass'>,
): Generator<Conflict> {
  if (data.neutral === 'class' && !neutralClass)
    yield conflict(
      'data.neutral',
      `data.neutral is class, which only method reward learns, with reward_model.head: classes; for method ${method} choose positive, negative or drop`,
    );
  if (data.neutral !== 'drop') return;
  for (const [section, { neutral } = {}] of Object.entries({ eval_verdicts, eval_scores }))
    if (neutral === 'positive' || neutral === 'negative')
      yield conflict(
        `${section}.neutral`,
        `${section}.neutral is ${neutral}, and data.neutral drop reads no neutral steps; set it to drop, or change data.neutral`,
      );
}

function* promptConflicts({
  template,
  step_separator,
  pos_word,
  neg_word,
}: PromptConfig): Generator<Conflict> {
  if (pos_word.trim() === neg_word.trim())
    yield conflict(
      'prompt.neg_word',
      `prompt.pos_word and prompt.neg_word must differ, found ${JSON.stringify(pos_word)} for both`,
    );
  if (step_separator !== undefined && template !== TRL_TEMPLATE)
    yield conflict(
      'prompt.step_separator',
      `prompt.step_separator is ${JSON.stringify(step_separator)}, and prompt.template ${JSON.stringify(template)} ends steps by itself; set prompt.template: ${TRL_TEMPLATE}`,
    );
  if (VERDICT_TEMPLATES.includes(template)) return;
  const unknown = unknownTemplate(template);
  if (unknown !== undefined) {
    yield conflict('prompt.template', `prompt.template: ${unknown}`);
    return;
  }
  for (const place of ['{problem}', '{steps}']) {
    const found = template.split(place).length - 1;
    if (found !== 1)
      yield conflict('prompt.template', `prompt.template must hold ${place} exactly once, found ${found}`);
  }
}
