// `steptrain data s3c`: samples with self-corrections from right solutions and the model whose errors they correct.
import { join } from 'node:path';
import { loadModel } from '../../api/model.js';
import type { CorrectionsConfig } from '../../config/corrections.js';
import { reportLines } from '../../corrections/count-lines.js';
import { openSampleFile, SAMPLES, type SampleFile } from '../../corrections/file.js';
import { likelihoodWarning } from '../../corrections/likelihood.js';
import type { SourceSolution } from '../../corrections/solution.js';
import { sourceSolutions } from '../../corrections/source.js';
import { makeIntoFile } from '../../corrections/stream.js';
import type { Part } from '../../data/split.js';
import { modelFingerprint } from '../../eval/solving/settings.js';
import type { S3cRunConfig } from '../../methods/s3c/config.js';
import { configuredTools } from '../../methods/s3c/making.js';
import { baseDirectory } from '../../models/base.js';
import { ending } from '../../native/ending.js';
import { openDraws } from '../../run/draws.js';
import { dataContent } from '../../run/inputs.js';
import { configuredTokenizer } from '../../run/tokenizer.js';
import { openDevice } from '../../runtime/device.js';
import { createProgress } from '../../terminal/progress.js';
import type { JsonObject } from '../../weights/json.js';
import { chosenDevice } from '../chosen/device.js';
import { Interrupted, UsageError } from '../line/error.js';
import { untilInterrupted } from '../line/interrupt.js';

/** Makes samples of the solutions of `part` into `directory`, or goes on there. Lines to print at the end. */
export async function makeCorrections(
  config: S3cRunConfig,
  directory: string,
  part: Part | 'all',
): Promise<string[]> {
  const { corrections: settings, model: named, run } = config;
  if (settings === 'none')
    throw new UsageError(
      'the recipe has no section corrections, which says how samples are made; see docs/methods/s3c.md',
    );
  if (typeof named.base !== 'string' && !settings.server)
    throw new UsageError('model.base starts from random weights, which make no steps; name a trained base');
  if (named.adapter !== undefined && !settings.server)
    throw new UsageError(
      `model.adapter is ${named.adapter}, and steps are sampled from a base alone; merge it with steptrain merge and name the result as model.base`,
    );
  const tokenizer = await configuredTokenizer(named);
  using interruption = ending(untilInterrupted());
  using draws = ending(openDraws(join(directory, 'draws.jsonl')));
  const threads = run.threads > 0 ? { threads: run.threads } : {};
  using device = settings.server ? undefined : openDevice(await chosenDevice(run.device), threads);
  const { dtype, quantize } = named;
  using model = device && (await loadModel(device, baseDirectory(named.base as string), { dtype, quantize }));
  const weights = model ? await modelFingerprint(model, tokenizer) : null;
  const files = await dataContent(config.data);
  await using file = ending(await openSampleFile(directory, { ...settingsOf(config, part), weights, files }));
  const decoder = model?.decoder;
  const tools = configuredTools(config, tokenizer, { draws, ...(decoder ? { decoder } : {}) });
  const solutions = chosenSolutions(config, part);
  const progress = createProgress({
    total: await counted(solutions()),
    start: file.solutions,
    unit: 'solution',
  });
  tools.sampler.report = (part) => progress.part(part);
  try {
    const whole = await makeIntoFile(solutions(file), file, tools, {
      signal: interruption.signal,
      onProgress(done) {
        draws.clear();
        progress.update(done, { samples: file.tally.get('samples') });
      },
    });
    progress.finish();
    if (!whole)
      throw new Interrupted(
        `Stopped after ${file.solutions} solutions; their samples are in ${directory}, and the same command again goes on there, with the ${draws.size} samples of the chunk under way.`,
      );
  } finally {
    progress.finish();
    await tools.close();
  }
  const warning = likelihoodWarning(file.tally);
  if (warning) console.error(`Warning: ${warning}`);
  return [...reportLines(file), `wrote ${directory}/${SAMPLES}`];
}

/**
 * The solutions of a part. With a file, solutions that are left out are counted there, if it does not have them yet.
 */
function chosenSolutions({ data }: S3cRunConfig, part: Part | 'all') {
  return async function* (file?: SampleFile): AsyncGenerator<SourceSolution> {
    const before = file?.solutions ?? 0;
    let read = 0;
    const leftOut = (reason: string) => {
      if (file && read >= before) file.tally.add(`left out: ${reason}`);
    };
    for await (const { part: found, solution } of sourceSolutions(data, leftOut)) {
      if (part !== 'all' && found !== part) continue;
      read++;
      yield solution;
    }
  };
}

async function counted(solutions: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _ of solutions) count++;
  if (count === 0)
    throw new UsageError(
      'the data has no solution with an answer; expected rows such as those of GSM8K or MetaMathQA',
    );
  return count;
}

/** The settings that samples depend on. Settings that change only memory or speed are left out. */
function settingsOf({ model, data, format, corrections, run }: S3cRunConfig, part: string): JsonObject {
  const { chunk: _, max_rows: _rows, server, annotate, ...making } = corrections as CorrectionsConfig;
  const { concurrency: _c, key_env: _k, ...teacher } = annotate;
  return JSON.parse(
    JSON.stringify({
      model: server ? server.model : model.base,
      data,
      format,
      corrections: { ...making, annotate: teacher },
      seed: run.seed,
      part,
    }),
  );
}
