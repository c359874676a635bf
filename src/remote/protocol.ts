/** Differences between servers: the request for samples, and the way to read their tokens. */
import type { SourceOptions, SourceSample } from '../generate/sample-source.js';
import { keyOfSeed, philox4x32 } from '../random/philox.js';

/** One request: some samples of one prompt. */
export interface SampleRequest {
  readonly model: string;
  readonly prompt: readonly number[];
  readonly promptId: number;
  /** Number of the first of the samples. */
  readonly sample: number;
  readonly n: number;
  readonly options: SourceOptions;
}

/** Reads the events of one response. Failures that may pass are PassingFailures, unsupported requests RemoteErrors. */
export interface SampleReader {
  push(event: unknown): void;
  /** The samples, after the last event; everything is checked to be there, once. */
  end(): readonly SourceSample[];
}

export interface Protocol {
  readonly path: string;
  /** The largest temperature that it takes; absent: any. */
  readonly maxTemperature?: number;
  /** Whether one request may ask for several samples of a prompt. */
  readonly many: boolean;
  body(request: SampleRequest): object;
  reader(request: SampleRequest): SampleReader;
  readonly loadPath: string;
  readonly unloadPath: string;
  /** How to make the server load adapters, for the refusal of one that does not. */
  readonly adapterHint: string;
  /** Requests, one after the other, that make the server read its weights anew from the directory at `path`; absent: it cannot. */
  readonly reload?: (path: string) => readonly (readonly [path: string, body: object])[];
  /** How to make the server read its weights anew, for the refusal of one that cannot. */
  readonly reloadHint?: string;
}

/** Domain of the seeds for servers with generators of their own. */
const SEEDS = 0x73656564;

/** The fields of sampling that all servers name alike. */
export function samplingFields({ temperature = 1, topK, topP, minP, ignoreEos, stop = [] }: SourceOptions) {
  return {
    temperature,
    // Always sent: a server may have other defaults (generation_config.json, --preferred-sampling-params).
    top_k: topK || -1,
    top_p: topP ?? 1,
    min_p: minP ?? 0,
    repetition_penalty: 1,
    presence_penalty: 0,
    frequency_penalty: 0,
    ignore_eos: ignoreEos,
    stop: stop.filter((each) => typeof each === 'string'),
    stop_token_ids: stop.filter((each) => typeof each === 'number'),
  };
}

/** A seed below 2³¹, different for every seed, round, prompt and sample. */
export function seedOf({ promptId, sample, options }: SampleRequest): number {
  const { seed = 0, iteration = 0 } = options;
  const [word] = philox4x32([iteration, promptId, sample, SEEDS], keyOfSeed(seed));
  return word >>> 1;
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isTokenList(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0);
}

export function isLogprobList(value: unknown): value is readonly number[] {
  return (
    Array.isArray(value) && value.every((logprob) => typeof logprob === 'number' && Number.isFinite(logprob))
  );
}
