/** Labels of turns, as `steptrain label` makes them: by results, by episodes that go on, or by a judge, who labels steps of solutions too. */
import { readFile } from 'node:fs/promises';
import type { RowSolution } from '../../data/solution-rows.js';
import type { PlacedSolution } from '../../eval/solution-stream.js';
import { systemReason } from '../../files/error.js';
import type { StepRecord } from '../../records/record.js';
import {
  chosenSampling,
  type ModelArguments,
  type NamedRun,
  type SamplingArguments,
  withModel,
} from '../chosen/model-options.js';
import { UsageError } from '../line/error.js';
import type { OpenLabeller } from './labeller.js';

export interface TurnArguments extends ModelArguments, NamedRun, SamplingArguments {
  readonly file: string;
  readonly problem?: string | undefined;
  readonly solution?: string | undefined;
  readonly answer?: string | undefined;
  readonly results?: boolean | undefined;
  readonly judge?: string | undefined;
  readonly rubric?: string | undefined;
  readonly environment?: string | undefined;
  readonly k: number;
  readonly 'max-rows'?: number | undefined;
}

export function turnLabeller(args: TurnArguments, signal: AbortSignal): Promise<OpenLabeller> {
  const { judge, environment = '' } = args;
  if (args.results) return byResults();
  return judge === undefined ? byEpisodes(args, environment, signal) : byJudge(args, judge, signal);
}

async function byResults(): Promise<OpenLabeller> {
  const { labelsByResults } = await import('../../data/turn-results.js');
  const { labelledTurns, turnsOf } = await import('../../eval/completions/turn-labels.js');
  const labelled = ({ solution, where, index }: PlacedSolution): StepRecord[] => {
    if (!solution) return [];
    const own = { ...turnsOf(solution, where, '--results'), where, index };
    return [labelledTurns(own, labelsByResults(own.turns.steps, own.answer))];
  };
  return { settings: { results: true }, label: async (batch) => batch.flatMap(labelled), dispose() {} };
}

async function byJudge(args: TurnArguments, name: string, signal: AbortSignal): Promise<OpenLabeller> {
  const { labelledTurns } = await import('../../eval/completions/turn-labels.js');
  const { verdictsOf } = await import('../../scoring/scorer.js');
  const { openDevice } = await import('../../runtime/device.js');
  const { isNoModel, openScorer } = await import('../../scoring/open.js');
  const { solutionStream } = await import('../../eval/solution-stream.js');
  const { sha256 } = await import('../../eval/solving/settings.js');
  const { chosenDevice } = await import('../chosen/device.js');
  const rubric = await rubricFrom(args.rubric, name);
  const device = openDevice(await chosenDevice(args.device));
  const scorer = await openScorer(device, rubric === undefined ? name : askedBy(name, rubric), {
    unit: 'step',
  }).catch((error: unknown) => {
    device.dispose();
    throw error;
  });
  const verdicts = verdictsOf(scorer);
  const asked = ({ problem, steps, turns, answer }: RowSolution) => ({
    ...{ problem, steps, turns },
    ...(answer === undefined ? {} : { of: { problem, answer } }),
  });
  /** A hash of what the judge says of the first solution: other weights, or another threshold, say something else. */
  const fingerprintOf = async () => {
    for await (const { solution } of solutionStream(args.file, { columns: args })) {
      if (!solution) continue;
      const scores = await scorer.score([asked(solution)], { signal });
      return sha256(JSON.stringify([scores, await verdicts([asked(solution)], signal)]));
    }
    return 'no solutions';
  };
  return {
    settings: {
      judge: name,
      ...(rubric === undefined ? {} : { rubric }),
      ...(isNoModel(name) ? {} : { weights: await fingerprintOf() }),
    },
    async label(batch) {
      const placed = batch.flatMap(({ solution, ...place }) => (solution ? [{ ...place, solution }] : []));
      const found = await verdicts(
        placed.map(({ solution }) => asked(solution)),
        signal,
      );
      if (signal.aborted) return undefined;
      return placed.map(({ solution, where, index }, i): StepRecord => {
        const labels = found[i] ?? [];
        const { turns, problem, steps, answer, outcome } = solution;
        if (turns) return labelledTurns({ ...solution, turns, where, index }, labels);
        return {
          problem,
          ...(answer === undefined ? {} : { gold_answer: answer }),
          steps: steps.map((text, h) => ({ text, label: labels[h] ?? null, kind: 'normal' })),
          ...(outcome === undefined ? {} : { outcome }),
        };
      });
    },
    dispose() {
      scorer.dispose();
      device.dispose();
    },
  };
}

async function byEpisodes(given: TurnArguments, name: string, signal: AbortSignal): Promise<OpenLabeller> {
  const args = withModel(given);
  const { temperature, topP, topK, minP, seed, maxNewTokens } = chosenSampling(args);
  const { openEnvironment } = await import('../../environments/open.js');
  const { openChosenModel } = await import('../chosen/chosen-model.js');
  const { modelFingerprint } = await import('../../eval/solving/settings.js');
  const { turnRolloutLabels, turnsOf } = await import('../../eval/completions/turn-labels.js');
  const environment = await openEnvironment(name);
  const { device, model, tokenizer, eosTokenIds } = await openChosenModel(args);
  const options = { k: args.k, temperature, topP, topK, minP, seed, maxNewTokens };
  const maxRows = args['max-rows'];
  return {
    settings: {
      ...options,
      environment: name,
      model: args.run ?? args.model,
      adapter: args.adapter,
      weights: await modelFingerprint(model, tokenizer),
    },
    label: (batch) =>
      turnRolloutLabels(
        model,
        tokenizer,
        environment,
        batch.flatMap(({ solution, where, index }) =>
          solution ? [{ ...turnsOf(solution, where, '--environment'), where, index }] : [],
        ),
        { ...options, eosTokenIds, signal, ...(maxRows === undefined ? {} : { maxRows }) },
      ),
    dispose() {
      void environment.dispose?.();
      model.dispose();
      device.dispose();
    },
  };
}

/** A language model at an address, with what else counts. */
function askedBy(name: string, rubric: string) {
  const [url = '', model] = name.split('#');
  return { url, model: model || 'default', apiKey: process.env.OPENAI_API_KEY, rubric };
}

/** A rubric in words, or the content of a file. @throws UsageError for a judge that reads none */
async function rubricFrom(given: string | undefined, judge: string): Promise<string | undefined> {
  if (given === undefined) return undefined;
  if (!/^https?:\/\//.test(judge))
    throw new UsageError(
      `--rubric is for a language model at an address (--judge http://HOST/v1#MODEL), and ${judge} judges as it was trained; leave it out`,
    );
  if (/\s/.test(given.trim())) return given;
  return readFile(given, 'utf8').catch((error: unknown) => {
    throw new UsageError(
      `--rubric expects words or a file of them, and ${given} cannot be read: ${systemReason(error)}`,
    );
  });
}
