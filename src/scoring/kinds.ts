// The kinds of models that score: how the files of each are recognized, and the scorers that it opens.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Model } from '../api/model.js';
import type { ModelConfig } from '../architectures/config.js';
import { className } from '../architectures/heads.js';
import { isBidirectional } from '../architectures/table.js';
import { areReversed, reversedClasses } from '../data/class-names.js';
import type { VerdictPromptOptions } from '../data/verdict.js';
import { loadAdapter } from '../models/adapter.js';
import { CARD, readCard } from '../models/card.js';
import { loadDecoder } from '../models/load.js';
import { defined } from '../native/defined.js';
import { log } from '../native/elementary.js';
import { invalid } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { typedCommand } from '../native/typed-command.js';
import { RunError } from '../run/error.js';
import { warn } from '../terminal/log.js';
import { readingUpTo } from '../tokenizer/reading-up-to.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { isAdapter } from '../weights/adapter.js';
import { calledAs } from '../weights/gguf/checkpoint.js';
import type { JsonObject } from '../weights/json.js';
import { calibrated } from './calibration/scorer.js';
import { classifierScorer, ON_LINES } from './classifier.js';
import type { GenerativeLayout } from './generative/layouts.js';
import { generativeScorer } from './generative/scorer.js';
import { openReference } from './implicit/reference.js';
import { implicitScorers } from './implicit/scorer.js';
import type { PublishedLayout } from './published/layouts.js';
import { publishedScorer } from './published/scorer.js';
import { CLASSES } from './reward-model/items.js';
import { rewardModelScorer } from './reward-model/scorer.js';
import { rewardScorer } from './reward-network/scorer.js';
import type { Scorer } from './scorer.js';
import {
  type JudgeSettings,
  LAYOUT,
  type NeutralScore,
  type SettingsOf,
  settingsOfFiles,
} from './settings.js';
import { tellingUnlike, unlikeBy } from './unlike-training.js';
import { verdictScorer } from './verdict/scorer.js';

/** The scorers of a model by name; the first is the default. */
export interface OpenScorers {
  readonly scorers: Readonly<Record<string, Scorer>>;
  dispose(): void;
}

/** Options that override how a model's run, or the maker of its files, has it score. */
export interface ScoringOptions {
  /** Text around a judged step, and the verdict words. */
  readonly prompt?: VerdictPromptOptions | undefined;
  /** `greedy`: the word that the model would write. A number: the least probability of a right step. */
  readonly threshold?: 'greedy' | number | undefined;
  /** Max tokens of a sequence; at most as many as the model reads. */
  readonly maxLength?: number | undefined;
  /** A verdict that is less probable than this, from 0.5 to 1, is none: the judge is unsure. */
  readonly unsure?: number | undefined;
  /** Answers of a judge that reasons, which vote. */
  readonly votes?: number | undefined;
  /** Treatment of a class for neutral steps. */
  readonly neutralScore?: NeutralScore | undefined;
}

interface ScoringModel {
  /** The name in reports. */
  readonly name: string;
  readonly model: Model;
  /** The policy of the run, where `model` is its reward network. */
  readonly policy?: Model;
  readonly tokenizer: Tokenizer;
  readonly maxLength: number;
  /** A solution that the tokenizer cannot express has no score, instead of an error. */
  readonly skipUnreadable: boolean;
}

type OpenKind<Kind extends JudgeSettings['kind']> = (
  settings: SettingsOf<Kind>,
  of: ScoringModel,
) => OpenScorers | Promise<OpenScorers>;

const lasting = (scorers: OpenScorers['scorers']): OpenScorers => ({ scorers, dispose() {} });

/** Log-odds from which a step is right. */
const leastOdds = (threshold: 'greedy' | number) =>
  threshold === 'greedy' ? 0 : log(threshold / (1 - threshold));

const roleOf = ({ adapter }: Model) => (adapter ? { adapter } : {});

/** Openers by the kind that the settings name. */
const KINDS: { readonly [Kind in JudgeSettings['kind']]: OpenKind<Kind> } = {
  verdict: ({ prompt, threshold, likelihood, votes }, { model, ...of }) =>
    lasting({
      verdict: verdictScorer(model.decoder, {
        ...{ ...of, prompt, threshold, likelihood, votes },
        role: roleOf(model),
      }),
    }),
  reward_model(settings, { model, ...of }) {
    const { prompt, threshold, type } = settings;
    const least = threshold === 'greedy' ? {} : { threshold };
    const options = { ...of, ...least, prompt, settings, role: roleOf(model) };
    const reward = rewardModelScorer(model.decoder, options);
    if (type !== 'joint') return lasting({ reward });
    return lasting({ reward, outcome: rewardModelScorer(model.decoder, { ...options, output: 'outcome' }) });
  },
  reward_network({ prompt, threshold, pair_mode: mode }, { model, policy, ...of }) {
    const writer = policy && { decoder: policy.decoder, role: roleOf(policy) };
    const reward = rewardScorer(model.decoder, { ...of, prompt, mode, role: roleOf(model), writer });
    return lasting({
      reward: reward.scale === 'log_odds' ? { ...reward, threshold: leastOdds(threshold) } : reward,
    });
  },
  async implicit_prm(settings, { model, ...of }) {
    const reference = await openReference(model, settings);
    const { template, beta, threshold } = settings;
    const policy = { decoder: model.decoder, role: roleOf(model) };
    return {
      scorers: implicitScorers(policy, reference, { ...of, template, beta, least: leastOdds(threshold) }),
      dispose: () => reference.dispose(),
    };
  },
  published: ({ layout, step_separator: separator, threshold }, { model, ...of }) =>
    lasting({
      reward: publishedScorer(model.decoder, {
        ...of,
        layout,
        separator,
        threshold: threshold === 'greedy' ? 0.5 : threshold,
        role: roleOf(model),
      }),
    }),
  generative: (
    { threshold, top_p: topP, max_new_tokens: maxNewTokens, layout, pattern, votes, temperature },
    { model, ...of },
  ) =>
    lasting({
      verdict: generativeScorer(model.decoder, {
        ...{ ...of, layout, pattern, votes, temperature, topP, maxNewTokens, role: roleOf(model) },
        threshold: threshold === 'greedy' ? 0.5 : threshold,
      }),
    }),
  classifier: ({ template, add_eos_token: addEosToken }, { model, name, tokenizer, maxLength }) =>
    lasting({ outcome: classifierScorer(model, { name, tokenizer, template, addEosToken, maxLength }) }),
};

/**
 * A kind of model from outside this package, recognized by its `config.json` or, where that is not enough, by its name.
 */
interface PublishedKind {
  /** `called`: the name of its adapter, else of its directory, and the one in its `config.json`. */
  knows(config: ModelConfig, called: string): boolean;
  settings(config: ModelConfig): JudgeSettings;
}

const PROMPT = { pos_word: '+', neg_word: '-', response_format: 'verdict', rationale_tokens: 64 } as const;

const readAs =
  (layout: PublishedLayout) =>
  ({ maxPositions }: ModelConfig): JudgeSettings => ({
    kind: 'published',
    layout,
    max_length: maxPositions,
    threshold: 'greedy',
  });
const reasonsAs =
  (layout: GenerativeLayout, maxNewTokens: number) =>
  ({ maxPositions }: ModelConfig): JudgeSettings => ({
    ...{ kind: 'generative', layout, votes: 1, temperature: 0.6, top_p: 0.95 },
    ...{ max_new_tokens: maxNewTokens, max_length: maxPositions, threshold: 'greedy' },
  });
const ofClass = (name: string) => (config: ModelConfig) => className(config) === name;
const ofName =
  (pattern: RegExp) =>
  ({ head }: ModelConfig, called: string) =>
    head.kind === 'causal' && pattern.test(called);

/** The first row that knows a model says how it scores. */
const PUBLISHED: readonly PublishedKind[] = [
  {
    knows: (config, called) =>
      ofClass('Qwen2ForProcessRewardModel')(config) && /reason-?flux-?prm/i.test(called),
    settings: readAs('reasonflux_prm'),
  },
  { knows: ofClass('Qwen2ForProcessRewardModel'), settings: readAs('qwen_prm') },
  { knows: ofClass('Qwen2ForPrmModel'), settings: readAs('skywork_prm') },
  { knows: ofClass('ReasonEval_7B'), settings: readAs('reason_eval_7b') },
  { knows: ofClass('ReasonEval_34B'), settings: readAs('reason_eval_34b') },
  {
    knows: ofName(/math-?shepherd[^/]*prm/i),
    settings: readAs('math_shepherd'),
  },
  { knows: ofName(/math-?psa/i), settings: readAs('math_psa') },
  { knows: ofName(/gen-?prm/i), settings: reasonsAs('gen_prm', 2048) },
  { knows: ofName(/think-?prm/i), settings: reasonsAs('think_prm', 4096) },
  {
    knows: ofName(/rlhflow[^/]*prm|llama3[^/]*-prm-(deepseek|mistral)-data/i),
    settings: readAs('rlhflow_prm'),
  },
  {
    // Token classifiers with one output, with two classes, or with wrong, right and neutral.
    knows: ({ head }) =>
      head.kind === 'token' &&
      head.published === undefined &&
      (head.numLabels <= 2 || head.labels?.join() === CLASSES.join()),
    settings: (config) => ({
      kind: 'reward_model',
      prompt: { ...PROMPT, template: LAYOUT },
      max_length: config.maxPositions,
      threshold: 'greedy',
      type: 'prm',
      head: 'numLabels' in config.head && config.head.numLabels === 1 ? 'scalar' : 'classes',
      input: isBidirectional(config) ? 'prefixes' : 'whole',
      ...('numLabels' in config.head && config.head.numLabels > 2 ? { neutral_score: 'positive' } : {}),
    }),
  },
  {
    // Sequence classifiers with one output or two classes.
    knows: ({ head }) => head.kind === 'sequence' && head.numLabels <= 2,
    settings: ({ maxPositions }) => ({
      kind: 'classifier',
      max_length: maxPositions,
      threshold: 'greedy',
    }),
  },
];

const nameOf = (files: Model['files']) => files && (files.adapter ?? calledAs(files.model));

/**
 * The settings by which a model scores: those of its card, else those of a row of published models, else verdict words
 * where `prompt` says how to ask.
 *
 * @throws RunError for a model without scores, and for options that it has no use for
 */
export function settingsOf(
  { decoder: { config }, files }: Pick<Model, 'decoder' | 'files'>,
  { prompt, threshold, unsure, votes, neutralScore }: ScoringOptions,
  name = nameOf(files) ?? 'this model',
): JudgeSettings {
  const found = (files && settingsOfFiles(files)) ?? publishedSettings(config, files);
  if (!found && !prompt) throw new RunError(noSettings(name, files));
  checkThreshold(threshold);
  checkUnsure(unsure);
  const asked = defined(prompt ?? {});
  const base: JudgeSettings = found ?? {
    kind: 'verdict',
    prompt: { ...PROMPT, template: 'auto' },
    max_length: config.maxPositions,
    threshold: 'greedy',
  };
  if (neutralScore !== undefined && !('neutral_score' in base)) throw noNeutralClass(name);
  const writesReasons = base.kind === 'verdict' && base.prompt.response_format === 'rationale_then_verdict';
  if (votes !== undefined && base.kind !== 'generative' && !writesReasons)
    throw new RunError(
      `${name} gives one probability to each step and writes no answers to vote with; leave votes out`,
    );
  if (votes !== undefined && !(Number.isSafeInteger(votes) && votes >= 1 && votes <= 1024))
    throw invalid(`votes: expected a whole number from 1 to 1024, found ${shown(votes)}`);
  const settings = {
    ...base,
    ...defined({ threshold, unsure, votes, neutral_score: neutralScore }),
  } as JudgeSettings;
  if (Object.keys(asked).length === 0) return settings;
  if (!('prompt' in settings))
    throw new RunError(
      `${name} ${settings.kind === 'implicit_prm' ? 'is an implicit reward model, which scores the steps of answers' : 'reads problem and solution as they are'} and is asked no verdict; give it no prompt`,
    );
  const otherwise = { ...settings, prompt: { ...settings.prompt, ...asked } };
  // Weights and calibration hold for the prompt that they were fitted with.
  if (otherwise.kind === 'verdict') delete otherwise.likelihood;
  delete otherwise.calibration;
  return otherwise;
}

/** @throws StepTrainError for an invalid threshold, by which every step would be wrong or every step right */
function checkThreshold(threshold: 'greedy' | number | undefined): void {
  if (threshold === undefined || threshold === 'greedy') return;
  if (typeof threshold === 'number' && threshold >= 0 && threshold <= 1) return;
  throw invalid(`threshold: expected 'greedy' or a number from 0 to 1, found ${shown(threshold)}`);
}

/** @throws StepTrainError for what is no probability of the likelier of two verdicts */
export function checkUnsure(unsure: number | undefined): void {
  if (unsure === undefined || (typeof unsure === 'number' && unsure >= 0.5 && unsure <= 1)) return;
  throw invalid(
    `unsure: expected the least probability of a verdict, a number from 0.5 to 1, found ${shown(unsure)}`,
  );
}

/**
 * The settings of a published model. An adapter is recognized by its name alone, since its base is an unrelated model.
 */
function publishedSettings(config: ModelConfig, files: Model['files']): JudgeSettings | undefined {
  const { _name_or_path: stored } = config.source;
  const called = files?.adapter ?? [files?.model, typeof stored === 'string' ? stored : ''].join(' ');
  const row = PUBLISHED.find(({ knows }) => knows(config, called));
  const isOfBase = files?.adapter !== undefined && config.head.kind !== 'causal';
  if (row === undefined || isOfBase) return undefined;
  const labels = 'numLabels' in config.head ? (config.head.labels ?? []) : [];
  if (areReversed(labels)) throw new RunError(`${nameOf(files) ?? 'this model'}: ${reversedClasses(labels)}`);
  return row.settings(config);
}

/** The sentence on a classifier whose files do not tell how it reads solutions; undefined for another model. */
function unsaidLayout(
  { decoder: { config }, files }: Pick<Model, 'decoder' | 'files'>,
  { kind }: JudgeSettings,
  tokenizer: Tokenizer,
): string | undefined {
  const { head } = config;
  if (!files || settingsOfFiles(files) || isBidirectional(config)) return undefined;
  const path = join(files.model, CARD);
  if (kind === 'reward_model' && head.kind === 'token' && head.numLabels === 2) {
    const layout = { kind: 'published', layout: 'trl', step_separator: '\n' };
    return (
      `has no ${CARD}, so it is read at the last token of each line; if TRL's PRMTrainer trained it, write ` +
      `${cardOfTrl(layout)} into ${path}, with its own step_separator and max_length`
    );
  }
  const endsOtherwise = !tokenizer.hasChatTemplate && tokenizer.eosId !== undefined;
  if (kind !== 'classifier' || !endsOtherwise || head.kind !== 'sequence' || head.numLabels !== 1)
    return undefined;
  const layout = { kind: 'classifier', template: ON_LINES, add_eos_token: true };
  return (
    `has no ${CARD} and no chat template, so it is read at the last token of problem, line break and solution; if TRL's ` +
    `RewardTrainer trained it, whose texts end with the end-of-text token, write ${cardOfTrl(layout)} into ${path}, with the text ` +
    'between prompt and completion of its own rows'
  );
}

const cardOfTrl = (judge: JsonObject): string =>
  JSON.stringify({ method: 'trl', judge: { ...judge, max_length: 1024, threshold: 'greedy' } });

/** The accepted judges, for errors. */
const EXPECTED =
  'expected what a run has trained to judge, a published reward model, a classification model, or word-problems-judge';

function noSettings(name: string, files: Model['files']): string {
  const card = files && readCard(files.adapter ?? files.model);
  if (card) return `${name} was trained by method ${card.method}, which does not judge steps; ${EXPECTED}`;
  return `${name} judges no steps; ${EXPECTED}; any other language model judges by the prompt that a program gives it (options.prompt of judgeSteps), or after a run has trained it: ${typedCommand('run my_steps --set model.base=MODEL')}`;
}

export const noNeutralClass = (name: string) =>
  new RunError(
    `the model of ${name} has no class for neutral steps, so --neutral-score has nothing to count; data.neutral: class trains one`,
  );

export interface ModelScorersOptions extends ScoringOptions {
  /** The name in reports. */
  readonly name?: string | undefined;
  /** Default: the one that the model carries. */
  readonly tokenizer?: Tokenizer | undefined;
  /** Directory of the run that trained the model; a reward network may lie in it. */
  readonly run?: string | undefined;
  readonly skipUnreadable?: boolean;
  /** Default: {@link settingsOf} the model. */
  readonly settings?: JudgeSettings | undefined;
}

/** The scorers of a loaded model. Disposing of them leaves the model loaded. */
export async function modelScorers(model: Model, options: ModelScorersOptions = {}): Promise<OpenScorers> {
  const { files } = model;
  const { run, skipUnreadable = false, name = nameOf(files) ?? 'model' } = options;
  const settings = options.settings ?? settingsOf(model, options, name);
  const maxLength = Math.min(options.maxLength ?? settings.max_length, model.decoder.config.maxPositions);
  const whole = options.tokenizer ?? (await model.tokenizer());
  const unsaid = unsaidLayout(model, settings, whole);
  if (unsaid) warn(`${name} ${unsaid}`);
  // Published layouts find the ends of steps in the tokens of the whole text.
  const tokenizer =
    settings.kind === 'published' || settings.kind === 'generative' ? whole : readingUpTo(whole, maxLength);
  const of = { name, model, tokenizer, maxLength, skipUnreadable };
  const own = await openKind(settings, of);
  const network = run === undefined ? undefined : await openNetwork(join(run, 'reward'), of);
  if (!network) return own;
  return {
    scorers: { ...own.scorers, ...network.scorers },
    dispose() {
      network.dispose();
      own.dispose();
    },
  };
}

/** The scorers of a model, if it has any: it may only write text. */
export async function scorersIfAny(
  model: Model,
  options: ModelScorersOptions,
): Promise<OpenScorers | undefined> {
  const { files } = model;
  return files && settingsOfFiles(files) ? modelScorers(model, options) : undefined;
}

async function openKind(settings: JudgeSettings, of: ScoringModel): Promise<OpenScorers> {
  const { calibration, unsure, threshold } = settings;
  // A threshold is of the calibrated probability, and no word at all is no verdict still.
  const own = calibration && threshold !== 'greedy' ? { ...settings, threshold: 0.5 } : settings;
  const opened = await (KINDS[settings.kind] as OpenKind<JudgeSettings['kind']>)(own as never, of);
  const warnings = ('warnings' in settings && settings.warnings) || [];
  const judge = judgeOf(opened);
  const segmentation = 'prompt' in settings ? settings.prompt.segmentation : undefined;
  const least = threshold === 'greedy' ? 0.5 : threshold;
  const unlike = unlikeBy(settings);
  const told = (scorer: Scorer, name: string) =>
    unlike && name === judge ? tellingUnlike(scorer, unlike) : scorer;
  const scorers = Object.entries(opened.scorers).map(([name, scorer]) => {
    const isCalibrated = calibration !== undefined && name === judge;
    return [
      name,
      {
        ...told(isCalibrated ? calibrated(scorer, calibration, least) : scorer, name),
        ...(unsure === undefined || name !== judge ? {} : { unsure }),
        ...(warnings.length === 0 ? {} : { warnings }),
        ...(segmentation === undefined ? {} : { segmentation }),
      },
    ] as const;
  });
  return { ...opened, scorers: Object.fromEntries(scorers) };
}

/** The name of the scorer that judges steps. Log-ratios are probabilities too, but their scorer gives the number itself. */
export const judgeOf = ({ scorers }: Pick<OpenScorers, 'scorers'>): string =>
  scorers.probability ? 'reward' : (Object.keys(scorers)[0] as string);

/** The reward network that a run of StepAMC kept. */
async function openNetwork(directory: string, of: ScoringModel): Promise<OpenScorers | undefined> {
  if (!existsSync(directory)) return undefined;
  const settings = settingsOfFiles({ model: directory, adapter: undefined });
  if (settings?.kind !== 'reward_network') return undefined;
  const { decoder } = of.model;
  // A run without lora leaves a model of its own.
  const own = isAdapter(directory)
    ? { decoder, adapter: loadAdapter(decoder.device, decoder.config, directory) }
    : {
        decoder: await loadDecoder(decoder.device, directory, { dtype: decoder.options.dtype }),
        adapter: undefined,
      };
  const { scorers } = await openKind(settings, {
    ...of,
    model: own as Model,
    policy: of.model,
  });
  return { scorers, dispose: () => (own.adapter ?? own.decoder).dispose() };
}
