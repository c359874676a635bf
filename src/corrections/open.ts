/** Opens the models that make samples, as a configuration names them: the sampled model and the teacher. */
import { Model } from '../api/model.js';
import type { Cluster } from '../cluster/cluster.js';
import { foundOnce } from '../cluster/exchange.js';
import type { CorrectionsConfig } from '../config/corrections.js';
import { concurrencyOf, rowsOf } from '../config/sampling.js';
import { badOption } from '../files/data-error.js';
import { Generator } from '../generate/generator.js';
import { generatorSource, type SampleSource } from '../generate/sample-source.js';
import type { Decoder } from '../models/decoder.js';
import { askedOnce } from '../remote/asked-once.js';
import { remoteSource } from '../remote/remote-source.js';
import { processesOf } from '../runtime/processes.js';
import { endTokens } from '../tokenizer/reply-end.js';
import type { MakingTools } from './make.js';
import { remoteTeacher } from './remote-teacher.js';
import { StepSampler, type StepSamplerOptions } from './sampler.js';
import { oracleTeacher, plainTeacher, type Teacher } from './teacher.js';

export interface OpenToolsOptions extends Omit<StepSamplerOptions, 'source'> {
  readonly settings: CorrectionsConfig;
  /** Whether the problems are generated, so that the oracle knows them. */
  readonly isGenerated: boolean;
  /** The model in this process; not needed where `settings.server` names one. */
  readonly decoder?: Decoder;
  readonly eosTokenIds?: readonly number[];
  readonly cacheBytes?: number | undefined;
}

export type OpenTools = MakingTools & { close(): Promise<void> };

/** @throws DataError where settings are missing */
export function openTools(options: OpenToolsOptions): OpenTools {
  const { settings, tokenizer, prompt, separator, seed, maxLength, draws } = options;
  const closing: (() => Promise<void> | void)[] = [];
  const teacher = chosenTeacher(options, closing);
  const source = chosenSource(options, closing);
  const sampler = new StepSampler({
    source,
    tokenizer,
    prompt,
    separator,
    seed,
    maxLength,
    ...(draws ? { draws } : {}),
  });
  return {
    sampler,
    teacher,
    settings,
    seed,
    separator,
    ...(options.decoder && !settings.server ? { scorer: new Model(options.decoder) } : {}),
    async close() {
      for (const close of closing) await close();
    },
  };
}

function chosenSource(
  { settings: { server, max_rows }, decoder, tokenizer, eosTokenIds, cacheBytes }: OpenToolsOptions,
  closing: (() => Promise<void> | void)[],
): SampleSource {
  if (server) {
    const { url, kind, model } = server;
    const source = remoteSource({
      url,
      server: kind,
      concurrency: concurrencyOf(max_rows),
      ...(model ? { model } : {}),
    });
    closing.push(() => source.close());
    const ends =
      eosTokenIds ?? endTokens({ eosTokenIds: [], vocabSize: Number.POSITIVE_INFINITY }, tokenizer);
    return askedOnce(endedBy(source, ends), clusterOf(decoder));
  }
  if (!decoder) throw badOption('there is no model to sample from; name one, or corrections.server');
  const maxRows = rowsOf(max_rows);
  const generator = new Generator(decoder, {
    ...(maxRows === undefined ? {} : { maxRows }),
    ...(cacheBytes === undefined ? {} : { cacheBytes }),
  });
  closing.push(() => generator.dispose());
  return generatorSource(generator, { tokenizer, ...(eosTokenIds ? { eosTokenIds } : {}) });
}

/** The source with further tokens that end its samples. */
function endedBy(source: SampleSource, ends: readonly number[]): SampleSource {
  return {
    sample: (prompts, { stop = [], ...options }) =>
      source.sample(prompts, { ...options, stop: [...stop, ...ends] }),
    publish: (adapter, iteration) => source.publish(adapter, iteration),
    close: () => source.close(),
  };
}

function chosenTeacher(
  { settings: { annotate }, isGenerated, decoder }: OpenToolsOptions,
  closing: (() => Promise<void> | void)[],
): Teacher {
  const {
    url,
    model,
    key_env: keyEnv,
    temperature,
    max_tokens: maxTokens,
    concurrency,
    attempts: tries,
  } = annotate;
  const kind =
    annotate.teacher === 'auto' ? (url ? 'remote' : isGenerated ? 'oracle' : 'plain') : annotate.teacher;
  if (kind === 'oracle' && !isGenerated)
    throw badOption('corrections.annotate.teacher "oracle" knows generated word problems alone');
  if (kind === 'oracle') return oracleTeacher();
  if (kind === 'plain') return plainTeacher();
  if (url === undefined || model === undefined)
    throw badOption('a remote teacher needs corrections.annotate.url and corrections.annotate.model');
  const teacher = remoteTeacher({ url, model, keyEnv, temperature, maxTokens, concurrency, tries });
  closing.push(() => teacher.close());
  return {
    name: teacher.name,
    correct: (steps, signal) => foundOnce(clusterOf(decoder), () => teacher.correct(steps, signal)),
  };
}

const clusterOf = (decoder: Decoder | undefined): Cluster | undefined =>
  decoder && processesOf(decoder.device)?.cluster;
