/** The stage that makes samples of right solutions, with wrong steps of the model as it is before training. */

import { reportLines } from '../../corrections/count-lines.js';
import { likelihoodWarning } from '../../corrections/likelihood.js';
import { type OpenTools, type OpenToolsOptions, openTools } from '../../corrections/open.js';
import { samplesOf } from '../../corrections/stream.js';
import { Tally, type TallyState } from '../../corrections/tally.js';
import { PARTS, type Part } from '../../data/split.js';
import { StepTrainError } from '../../native/errors.js';
import type { StepRecord } from '../../records/record.js';
import { readLog } from '../../run/log-file.js';
import { groupBySize } from '../../sequences/batching.js';
import { toLog, warn } from '../../terminal/log.js';
import { endTokens } from '../../tokenizer/reply-end.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import type { OpenRun } from '../../train/method.js';
import type { Trainee } from '../../train/roles/trainee.js';
import type { MakingStage } from '../../train/stage.js';
import type { S3cRunConfig } from './config.js';
import type { S3cData, Solutions } from './data.js';
import { type CorrectionSamples, SampleCollector } from './samples.js';
import { correctionPrompt, promptLead } from './sequences.js';

export type S3cRun = OpenRun<S3cRunConfig, S3cData, Trainee>;

/** Name of the stage. */
export const MAKING = 'corrections';

const ARTEFACT = 'samples';

/** Chunks between checkpoints. */
const SAVED = 8;

/** The tools of the section `corrections`; `opened` has the parts that a recipe does not name. */
export function configuredTools(
  { corrections: settings, format, run, data }: S3cRunConfig,
  tokenizer: Tokenizer,
  opened: Pick<OpenToolsOptions, 'decoder' | 'cacheBytes' | 'draws'>,
): OpenTools {
  if (settings === 'none') throw new RangeError('there is nothing to make');
  const prompt = correctionPrompt(tokenizer, format);
  const { decoder } = opened;
  return openTools({
    settings,
    tokenizer,
    prompt: { tokens: prompt.tokens, lead: promptLead(prompt) },
    separator: format.separator,
    seed: run.seed,
    maxLength: data.max_length,
    isGenerated: data.source === 'word_problems',
    ...(decoder ? { eosTokenIds: endTokens(decoder.config, tokenizer) } : {}),
    ...opened,
  });
}

/** A step makes the samples of one chunk of solutions. */
export function makingStage(open: S3cRun, solutions: Solutions): MakingStage {
  const { config, roles, tokenizer, cacheBytes, run: directory } = open;
  const { corrections: settings, s3c } = config;
  if (settings === 'none') throw new RangeError('there is nothing to make');
  const chunks = PARTS.flatMap((part) =>
    groupBySize(solutions[part], () => 1, settings.chunk).map((own) => ({ part, solutions: own })),
  );
  return {
    name: MAKING,
    steps: chunks.length,
    artefact: ARTEFACT,
    settings: { save_steps: SAVED, save_total_limit: s3c.save_total_limit },
    batching: { 'corrections.chunk': settings.chunk },
    open() {
      const { decoder } = roles;
      const tools = configuredTools(config, tokenizer, { decoder, cacheBytes, draws: directory.draws });
      let tally = new Tally();
      let tokens = 0;
      return {
        async begin() {},
        async step(index, signal, report) {
          tools.sampler.report = report;
          const { part, solutions: chunk } = chunks[index] as (typeof chunks)[number];
          const before = tools.sampler.tokens;
          // A chunk that is stopped half-way is made, and counted, again.
          const counted = new Tally(tally.state);
          const made = await samplesOf(chunk, tools, counted, signal);
          if (!made) return undefined;
          tally = counted;
          const drawn = tools.sampler.tokens - before;
          tokens += drawn;
          if (index === chunks.length - 1) {
            for (const line of reportLines({ tally, tokens })) toLog(line);
            const warning = likelihoodWarning(tally);
            if (warning) warn(warning);
          }
          const samples = tally.get('samples');
          return {
            rows: made.map((record) => ({ part, record })),
            metrics: {
              solutions: tally.get('solutions'),
              samples,
              distinct_wrong_steps: tally.distinctWrongSteps,
            },
            shown: { samples },
            tokens: drawn,
          };
        },
        state: () => ({ tally: tally.state, tokens }),
        restore(state) {
          const saved = state as { readonly tally: TallyState; readonly tokens: number };
          tally = new Tally(saved.tally);
          tokens = saved.tokens;
        },
        dispose() {
          void tools.close();
        },
      };
    },
  };
}

/** The samples that the stage made, as tokens. @throws StepTrainError if there is no sample to train on */
export function madeSamples({ config, tokenizer, run }: S3cRun): CorrectionSamples {
  const collector = new SampleCollector(config, tokenizer);
  for (const row of readLog(run.artefact(ARTEFACT).path)) {
    const { part, record } = row as unknown as { readonly part: Part; readonly record: StepRecord };
    collector.add(part, record);
  }
  const samples = collector.finish();
  if (samples.train.length === 0)
    throw new StepTrainError(
      'E_DATA',
      'no sample came out of corrections; look at its counts above, and raise sample.n or sample.temperature',
    );
  return samples;
}
