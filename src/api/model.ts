/** The embedding API: a model that scores token sequences and writes them. */

import { lstatSync } from 'node:fs';
import { className, publishedHead } from '../architectures/heads.js';
import { type GenerateOptions, Generator, type GeneratorOptions } from '../generate/generator.js';
import { roomToGenerate } from '../generate/room.js';
import type { GeneratedToken, Sample } from '../generate/rows/sample-row.js';
import { type Adapter, loadAdapter } from '../models/adapter.js';
import { describedNames } from '../models/base.js';
import { checkSequences, type RaggedBatch, raggedBatch } from '../models/batch.js';
import type { Decoder, Role } from '../models/decoder.js';
import { headOutputs, headRows, roleHead } from '../models/heads.js';
import { loadDecoder } from '../models/load.js';
import { isQuantize, QUANTIZE, type Quantize } from '../models/quantize.js';
import { foreignBaseOf } from '../models/same-model.js';
import { type ModelFiles, namedModel, type SavedModel, savedModel, withCard } from '../models/saved.js';
import { defined } from '../native/defined.js';
import { exp, log } from '../native/elementary.js';
import { checkOptions, DisposedError, invalid, StepTrainError } from '../native/errors.js';
import { shown } from '../native/shown.js';
import { typedCommand } from '../native/typed-command.js';
import { headLogprobs } from '../ops/head.js';
import { Device } from '../runtime/device.js';
import type { Tensor } from '../runtime/tensor.js';
import { groupBySize, tokensAtOnce } from '../sequences/batching.js';
import { loadTokenizer as tokenizerIn } from '../tokenizer/load.js';
import { endTokens } from '../tokenizer/reply-end.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { hasTokenizer } from '../tokenizer/tokenizer-files.js';
import { isAdapter } from '../weights/adapter.js';

export interface LoadModelOptions {
  /** Dtype of weights and activations; accumulation is f32 either way. Default: as its run had it, else f32. */
  readonly dtype?: 'f32' | 'bf16' | undefined;
  /** The weights that stay in 4 or 8 bits. Default: those of its run, else those that are stored so. */
  readonly quantize?: Quantize | undefined;
  /** Directory of a PEFT adapter, or a run that has one. */
  readonly adapter?: string | undefined;
  /** Whether `adapter` may be one of another base. Default false: it is refused where the base that it names is here and differs. */
  readonly otherBase?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Options of `Model.score` and `Model.classify`. */
export interface ScoreOptions {
  /** Aborted: no further batch begins, and the promise rejects with the signal's reason. On a CPU a batch of a large model has fewer tokens with one. */
  readonly signal?: AbortSignal | undefined;
}

export interface SequenceScore {
  /** log p(token t+1 | tokens 0…t), natural logarithm; one fewer than tokens. */
  readonly logprobs: Float32Array;
  /** Entropy in nats of the next-token distribution after each token. */
  readonly entropy: Float32Array;
}

/** Results of a `score` head: one row for a sequence, or one row per token. */
export interface SequenceClasses {
  /** Outputs of the head; for a reward model, the reward. */
  readonly logits: readonly Float32Array[];
  /** Natural logarithm of the probability of each class. */
  readonly logprobs: readonly Float32Array[];
}

/** Options and limits of `Model.generate`. `role` is the model's own adapter unless another is given. */
export type ModelGenerateOptions = GenerateOptions & GeneratorOptions;

const GENERATE_OPTIONS: Record<keyof ModelGenerateOptions, true> = {
  n: true,
  maxNewTokens: true,
  minTokens: true,
  temperature: true,
  topK: true,
  topP: true,
  minP: true,
  presencePenalty: true,
  frequencyPenalty: true,
  repetitionPenalty: true,
  logitBias: true,
  choices: true,
  choicesOnly: true,
  stop: true,
  eosTokenIds: true,
  ignoreEos: true,
  topLogprobs: true,
  promptLogprobs: true,
  promptTopLogprobs: true,
  seed: true,
  iteration: true,
  skip: true,
  onSample: true,
  promptIds: true,
  tokenizer: true,
  role: true,
  signal: true,
  cacheBytes: true,
  maxRows: true,
  maxTokens: true,
};

/**
 * Loads a model. An adapter of a run brings its base, tokenizer, prompt and verdict words; for any other, `adapter` is
 * its directory and `name` its base.
 *
 * @param name a Hugging Face directory, an adapter, a run directory, or a model of the package such as `embedded`
 * @throws StepTrainError for an option that does not exist or a base that is not here, WeightsError for a directory
 * that cannot be read
 */
export async function loadModel(
  device: Device,
  name: string,
  options: LoadModelOptions = {},
): Promise<Model> {
  if (!(device instanceof Device))
    throw invalid(`loadModel: expected a device, such as openDevice('cpu') gives, found ${shown(device)}`);
  if (typeof name !== 'string' || name === '') {
    const found = name === '' ? 'an empty text' : shown(name);
    throw invalid(`loadModel: expected the name of a model or a directory, found ${found}`);
  }
  checkOptions('loadModel', options, {
    dtype: true,
    quantize: true,
    adapter: true,
    otherBase: true,
    signal: true,
  });
  const { dtype: wanted, quantize, adapter, otherBase = false, signal } = options;
  if (wanted !== undefined && wanted !== 'f32' && wanted !== 'bf16') {
    throw invalid(`loadModel: dtype: expected 'f32' or 'bf16', found ${shown(wanted)}`);
  }
  if (quantize !== undefined && !isQuantize(quantize))
    throw invalid(`loadModel: quantize: expected one of ${QUANTIZE.join(', ')}, found ${shown(quantize)}`);
  const found = savedModel(name);
  checkIsHere('loadModel', found);
  if (adapter === undefined) return openSaved(device, found, { dtype: wanted, quantize, signal });
  if (found.adapter !== undefined) {
    throw invalid(`loadModel: ${name} is an adapter already; name the base of ${adapter}`);
  }
  const directory = namedModel(adapter).adapter ?? adapter;
  const trainedOn =
    otherBase || !isAdapter(directory) ? undefined : await foreignBaseOf(directory, found.directory);
  if (trainedOn !== undefined)
    throw invalid(
      `loadModel: ${adapter} was trained on ${trainedOn}, and ${name} is another model; name that one, or set otherBase: true`,
    );
  return openSaved(device, withCard({ ...found, adapter: directory }), {
    dtype: wanted,
    quantize,
    signal,
  });
}

/**
 * The tokenizer of a model, named as for `loadModel`: a model directory, an adapter or run directory, a GGUF file, or a model of
 * the package.
 *
 * @throws DataError for a missing or damaged file, StepTrainError for an adapter whose base is not here
 */
export async function loadTokenizer(model: string): Promise<Tokenizer> {
  const saved = savedModel(model);
  checkIsHere('loadTokenizer', saved);
  return tokenizerIn(saved.tokenizer);
}

/** @throws StepTrainError that says where it was looked for, or that a run has no model yet */
function checkIsHere(what: string, { name, kind, directory }: SavedModel): void {
  // An existing path that is no model gets its own error when it is read.
  if (kind === 'elsewhere' && isMissing(name))
    throw new StepTrainError(
      'E_ASSET',
      `${what}: there is no ${name} (looked for from ${process.cwd()}); name the directory of a model, an adapter or a run, a .gguf file, ` +
        `or one of those of the package, ${describedNames()}; a model of the hub has to be downloaded first, by fetchModel of steptrain/train`,
    );
  if (kind === 'run' && directory === name)
    throw new StepTrainError(
      'E_ASSET',
      `${what}: ${name} holds neither adapter/ nor model/: its training has not ended; continue with: ${typedCommand(`run --resume ${name}`)}`,
    );
}

function isMissing(path: string): boolean {
  try {
    lstatSync(path);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT';
  }
}

/** Opens a model whose name is already resolved. */
export async function openSaved(
  device: Device,
  saved: Pick<SavedModel, 'directory' | 'adapter' | 'dtype' | 'card' | 'tokenizer'>,
  {
    dtype = saved.dtype,
    quantize = saved.card?.quantize,
    signal,
  }: Pick<LoadModelOptions, 'dtype' | 'quantize' | 'signal'> = {},
): Promise<Model> {
  const { directory, adapter } = saved;
  const decoder = await loadDecoder(device, directory, { dtype, quantize, signal });
  try {
    const loaded = adapter === undefined ? undefined : loadAdapter(device, decoder.config, adapter);
    return new Model(decoder, loaded, decoder.config.eosTokenIds, { model: directory, adapter });
  } catch (error) {
    decoder.dispose();
    throw error;
  }
}

export class Model {
  private disposed = false;
  private ownTokenizer: Promise<Tokenizer> | undefined;

  constructor(
    readonly decoder: Decoder,
    readonly adapter?: Adapter,
    /** The end-of-text tokens of the model's configuration. */
    readonly eosTokenIds: readonly number[] = decoder.config.eosTokenIds,
    /** Files that it was loaded from; absent for a model that a program put together. */
    readonly files?: ModelFiles,
  ) {}

  get isDisposed(): boolean {
    return this.disposed;
  }

  /**
   * The tokenizer in the adapter's directory or, where there is none, in the base's. Read once.
   *
   * @throws DataError where there is none
   */
  tokenizer(): Promise<Tokenizer> {
    this.ownTokenizer ??= this.readTokenizer();
    return this.ownTokenizer;
  }

  private readTokenizer(): Promise<Tokenizer> {
    const { files } = this;
    if (!files) throw invalid('this model was not loaded from a directory: pass a tokenizer');
    return tokenizerIn(withCard({ directory: files.model, adapter: files.adapter }).tokenizer);
  }

  /**
   * Log-probabilities and entropies of each sequence; on the CPU the same bits whatever else is scored with it, on a GPU
   * among batches of up to 256 tokens (on Hopper of 17 to 256, and of fewer) and among those of more. No
   * [tokens, vocabulary] tensor is ever held.
   *
   * @throws StepTrainError for a sequence that the model cannot read, DisposedError after `dispose`
   */
  async score(sequences: readonly ArrayLike<number>[], options: ScoreOptions = {}): Promise<SequenceScore[]> {
    this.check('score', sequences);
    checkOptions('score', options, { signal: true });
    return this.inBatches(sequences, options.signal, (part) => this.scoreBatch(part));
  }

  /**
   * Outputs of the `score` head of a classification or reward model, or of an adapter that brings one.
   *
   * @throws StepTrainError for a model without such a head
   */
  async classify(
    sequences: readonly ArrayLike<number>[],
    options: ScoreOptions = {},
  ): Promise<SequenceClasses[]> {
    this.check('classify', sequences);
    checkOptions('classify', options, { signal: true });
    return this.inBatches(sequences, options.signal, (part) => this.classifyBatch(part));
  }

  /**
   * Samples continuations of all prompts together, with one cache of keys and values.
   *
   * @param prompts token ids; at least one each
   * @returns by prompt its `n` samples
   * @throws StepTrainError for a prompt that the model cannot read, an option out of range, or a sample that does not fit
   */
  async generate(
    prompts: readonly ArrayLike<number>[],
    options: ModelGenerateOptions = {},
  ): Promise<Sample[][]> {
    using generator = this.generatorFor(prompts, options);
    return await generator.generate(prompts, await this.completed(options)).samples;
  }

  /** Generates like `generate`, token by token. Leaving the loop ends all samples. */
  async *stream(
    prompts: readonly ArrayLike<number>[],
    options: ModelGenerateOptions = {},
  ): AsyncGenerator<GeneratedToken> {
    using generator = this.generatorFor(prompts, options);
    yield* generator.generate(prompts, await this.completed(options));
  }

  /**
   * The tokens that end a sample: {@link eosTokenIds}, the tokenizer's end of text, and what its chat template writes behind a reply,
   * with which training ends replies too.
   */
  endTokens(tokenizer: Tokenizer): readonly number[] {
    const { eosTokenIds, decoder } = this;
    return endTokens({ eosTokenIds, vocabSize: decoder.config.vocabSize }, tokenizer);
  }

  private async completed({
    maxRows: _,
    maxTokens: _tokens,
    cacheBytes: _bytes,
    ...options
  }: ModelGenerateOptions): Promise<GenerateOptions> {
    const given = defined(options);
    const eosTokenIds = given.eosTokenIds ?? (await this.ownEndTokens());
    return { role: this.role, ...given, eosTokenIds };
  }

  /** The end tokens; only those of the configuration where the model's directory has no tokenizer. */
  private async ownEndTokens(): Promise<readonly number[]> {
    const { files, eosTokenIds } = this;
    if (!files) return eosTokenIds;
    const { tokenizer } = withCard({ directory: files.model, adapter: files.adapter });
    return hasTokenizer(tokenizer) ? this.endTokens(await this.tokenizer()) : eosTokenIds;
  }

  /** A generator with a cache of at most the size that these prompts can fill. */
  private generatorFor(prompts: readonly ArrayLike<number>[], options: ModelGenerateOptions): Generator {
    this.check('generate', prompts);
    checkOptions('generate', options, GENERATE_OPTIONS);
    const { decoder } = this;
    return new Generator(decoder, { ...options, ...roomToGenerate(decoder, prompts, options) });
  }

  private check(what: string, sequences: readonly ArrayLike<number>[]): void {
    if (this.disposed) throw new DisposedError('the model');
    checkSequences(what, sequences, this.decoder.config);
  }

  private async inBatches<T>(
    sequences: readonly ArrayLike<number>[],
    signal: AbortSignal | undefined,
    run: (part: readonly ArrayLike<number>[]) => Promise<T[]>,
  ): Promise<T[]> {
    const results: T[] = [];
    const budget = tokensAtOnce(this.decoder, signal);
    for (const part of groupBySize(sequences, ({ length }) => length, budget)) {
      if (this.disposed) throw new DisposedError('the model');
      signal?.throwIfAborted();
      results.push(...(await run(part)));
    }
    signal?.throwIfAborted();
    return results;
  }

  /** The model with its adapter, if it has one, for what takes a decoder and a role. */
  get role(): Role {
    return { adapter: this.adapter };
  }

  private async scoreBatch(sequences: readonly ArrayLike<number>[]): Promise<SequenceScore[]> {
    const { decoder, role } = this;
    const head = decoder.head(role);
    // The last token of a sequence has no target; its row exists for the entropy.
    const targets = Int32Array.from(sequences.flatMap((ids) => [...Array.from(ids).slice(1), 0]));
    const { offsets, logprobs, entropy } = await this.forward(sequences, 'score', (hidden) => {
      const { logprobs, entropy } = headLogprobs(hidden, head, decoder.device.tensor(targets));
      return { logprobs, entropy };
    });
    return sequences.map(({ length }, i) => {
      const begin = offsets[i] as number;
      return {
        logprobs: logprobs.slice(begin, begin + length - 1),
        entropy: entropy.slice(begin, begin + length),
      };
    });
  }

  private async classifyBatch(sequences: readonly ArrayLike<number>[]): Promise<SequenceClasses[]> {
    const { decoder, role } = this;
    const head = roleHead(decoder, role);
    if (!head) {
      throw invalid(
        `classify: a ${className(decoder.config)} has no score head; give a classification model, or an adapter that brings one`,
      );
    }
    const { padTokenId, head: own } = decoder.config;
    // transformers' sequence classifiers ignore padding; published heads have code of their own.
    const read =
      head.reads === 'last' && publishedHead(own) === undefined
        ? sequences.map((ids) => withoutPadding(ids, padTokenId))
        : sequences;
    const { offsets, logits } = await this.forward(read, 'classify', (hidden, batch) => ({
      logits: headOutputs(hidden, head, headRows(decoder.device, batch, head)),
    }));
    const classes = head.weight.value.shape[0] as number;
    return sequences.map((_, i) => {
      const [begin, end] =
        head.reads === 'every' ? [offsets[i] as number, offsets[i + 1] as number] : [i, i + 1];
      const rows = Array.from({ length: end - begin }, (_, r) =>
        logits.slice((begin + r) * classes, (begin + r + 1) * classes),
      );
      return { logits: rows, logprobs: rows.map(logSoftmax) };
    });
  }

  /** Applies `head` to the hidden states of one batch; its f32 outputs in host memory. */
  private async forward<Name extends string>(
    sequences: readonly ArrayLike<number>[],
    label: string,
    head: (hidden: Tensor, batch: RaggedBatch) => Record<Name, Tensor>,
  ): Promise<Record<Name, Float32Array> & { readonly offsets: readonly number[] }> {
    const { decoder, role } = this;
    const { device } = decoder;
    const batch = raggedBatch(
      device,
      sequences.map((ids) => ({ ids })),
      decoder.config,
    );
    let outputs: [string, Tensor][] = [];
    try {
      outputs = Object.entries<Tensor>(device.scope(() => head(decoder.forward(batch, role), batch), label));
      const values = await Promise.all(
        outputs.map(async ([name, tensor]) => [name, await tensor.readFloats()]),
      );
      return { offsets: batch.offsets, ...Object.fromEntries(values) };
    } finally {
      for (const [, tensor] of outputs) tensor.dispose();
      batch.dispose();
    }
  }

  /** Frees the weights, also those of the adapter. A second call does nothing. */
  dispose(): void {
    this.disposed = true;
    this.adapter?.dispose();
    this.decoder.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** A sequence up to its last id that is not the pad; its first id alone where all are. */
function withoutPadding(ids: ArrayLike<number>, pad: number | undefined): ArrayLike<number> {
  let end = ids.length;
  while (end > 0 && ids[end - 1] === pad) end--;
  return end === ids.length ? ids : Array.prototype.slice.call(ids, 0, end || 1);
}

function logSoftmax(logits: Float32Array): Float32Array {
  const max = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const lse = max + log(logits.reduce((sum, logit) => sum + exp(logit - max), 0));
  return logits.map((logit) => logit - lse);
}
