/**
 * Metrics of the corrections in solutions that a model wrote by itself: how frequent, how right, and which errors stand
 * in the end.
 */
import type { CorrectionWriter } from '../../data/corrections/layout.js';
import type { CorrectionScope } from '../../data/corrections/standing.js';
import { judgeSolution } from '../../data/problems/oracle.js';
import type { OutputMetrics } from '../../eval/solving/corrections.js';
import type { SolvedProblem } from '../../eval/solving/dump.js';
import { type Scorer, type Solution, sampled, type Verdicts, verdictsOf } from '../../scoring/scorer.js';
import { type TranscribedCorrection, transcriptOf } from './transcript.js';

/** Solutions judged at a time. */
const BATCH = 256;

/** @param judge says which steps are right; without one only the rate is known */
export async function outputMetrics(
  problems: readonly SolvedProblem[],
  writer: Pick<CorrectionWriter, 'read'>,
  {
    judge,
    scope,
    signal,
  }: {
    readonly judge?: Scorer | undefined;
    readonly scope?: CorrectionScope | undefined;
    readonly signal?: AbortSignal | undefined;
  } = {},
): Promise<OutputMetrics> {
  const outputs = problems.flatMap(({ samples, ...of }, problem) =>
    samples.map(({ text, sample }) => ({ of, problem, sample, text, ...transcriptOf(text, writer, scope) })),
  );
  const corrections = outputs.flatMap((output) => output.corrections.map((each) => ({ output, each })));
  const corrected = outputs.filter((output) => output.corrections.length > 0).length;
  const counted = {
    samples: outputs.length,
    corrections: corrections.length,
    correction_rate: outputs.length === 0 ? 0 : corrected / outputs.length,
    errors: countErrors(outputs.map(({ of, kept }) => [of.generated, kept, 0] as const)),
    abandoned_errors: countErrors(
      corrections.map(
        ({ output, each }) =>
          [output.of.generated, [...each.before, each.abandoned], each.before.length] as const,
      ),
    ),
  };
  if (!judge) return counted;
  const asked = (steps: readonly string[], output: (typeof outputs)[number]): Solution =>
    sampled(output.of, output, steps);
  const verdictsFor = verdictsOf(judge);
  const last = async (part: 'abandoned' | 'improvement') => {
    const ends = corrections.map(({ output, each }) => asked([...each.before, each[part] ?? ''], output));
    const verdicts = await judged(verdictsFor, ends, signal);
    return corrections.map(({ each }, i) =>
      each[part] === undefined ? null : (verdicts[i]?.at(-1) ?? null),
    );
  };
  const [abandoned, improved] = [await last('abandoned'), await last('improvement')];
  const standing = await judged(
    verdictsFor,
    outputs.map((output) => asked(output.kept, output)),
    signal,
  );
  const verdicts = standing.flat().filter((verdict) => verdict !== null);
  const of = (verdict: 0 | 1) =>
    abandoned.flatMap((found, i) => (found === verdict ? [improved[i] ?? null] : []));
  const share = (part: number, whole: number) => (whole === 0 ? undefined : part / whole);
  const count = (found: readonly (0 | 1 | null)[], verdict: 0 | 1) =>
    found.filter((each) => each === verdict).length;
  return {
    ...counted,
    correction_precision: share(count(abandoned, 0), count(abandoned, 0) + count(abandoned, 1)),
    repair_rate: share(count(of(0), 1), of(0).length),
    harm_rate: share(count(of(1), 0), of(1).length),
    wrong_steps: share(count(verdicts, 0), verdicts.length),
    samples_with_wrong_step: share(standing.filter((list) => list.includes(0)).length, standing.length),
  };
}

async function judged(
  verdictsFor: Verdicts,
  solutions: readonly Solution[],
  signal?: AbortSignal,
): Promise<(readonly (0 | 1 | null)[])[]> {
  const found: (readonly (0 | 1 | null)[])[] = [];
  for (let at = 0; at < solutions.length; at += BATCH) {
    signal?.throwIfAborted();
    found.push(...(await verdictsFor(solutions.slice(at, at + BATCH), signal)));
  }
  return found;
}

/** Number of errors by kind from step `from` on, for generated problems. */
function countErrors(
  solutions: readonly (readonly [
    word: Parameters<typeof judgeSolution>[0] | undefined,
    steps: TranscribedCorrection['before'],
    from: number,
  ])[],
): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const [word, steps, from] of solutions) {
    if (!word) continue;
    for (const { error } of judgeSolution(word, steps).lines.slice(from))
      if (error !== undefined) counts[error] = (counts[error] ?? 0) + 1;
  }
  return counts;
}
