/** The second stage of a round: outcomes by the answers, steps by the judge, as records that any run can read. */
import { grouped } from '../../../native/grouped.js';
import { PhiloxStream, shuffled } from '../../../random/philox.js';
import type { StepLabel } from '../../../records/record.js';
import { stepsBy } from '../../../records/segment.js';
import { sampled, verdictsOf } from '../../../scoring/scorer.js';
import type { RunProblem } from '../../../train/solutions/problems.js';
import type { MakingStage, SaveSettings } from '../../../train/stage.js';
import {
  type Candidate,
  type CandidateRow,
  cutOffNote,
  isRight,
  labelledRecord,
  type SelectionOptions,
  selectCandidates,
} from './candidates.js';
import { chunkedStage } from './chunked-stage.js';
import { type RoundJudge, ruleOf } from './judges.js';

/** How labels of steps are changed so that they say less than the judge does. */
export interface LabelControl {
  /** This share of them is turned round. */
  readonly flip: number;
  /** Afterwards `shuffled` among the labelled steps of a chunk, all as the `outcome` of their solution, or all `wrong`. */
  readonly labels: 'none' | 'shuffled' | 'outcome' | 'wrong';
  readonly seed: number;
}

export interface LabelStageOptions {
  readonly name: string;
  /** The artefact that the candidates come from. */
  readonly source: string;
  readonly rows: readonly CandidateRow[];
  readonly problems: readonly RunProblem[];
  /** Absent: no step gets a label. */
  readonly judge: RoundJudge | undefined;
  /** The condition for a right candidate: `answer`, or also (`clean`) that no step is labelled wrong. */
  readonly outcome: 'answer' | 'clean';
  readonly control: LabelControl;
  readonly selection: SelectionOptions;
  /** Number of tokens at which candidates were cut off. */
  readonly maxNewTokens: number;
  readonly settings: SaveSettings;
}

export function labelStage(options: LabelStageOptions): MakingStage {
  const { name, source, problems, judge, outcome, control, selection, settings } = options;
  const verdicts = judge && verdictsOf(judge);
  const candidates = options.rows.map(
    (row): Candidate => ({ ...row, right: isRight(problems[row.problem] as RunProblem, row) }),
  );
  return chunkedStage({
    name,
    settings,
    note: cutOffNote(options.rows, options.maxNewTokens),
    items: [...grouped(candidates, ({ problem }) => problem).values()],
    async step(chunk, index, signal) {
      const clean = outcome === 'clean';
      const selected = chunk.map((candidates) =>
        selectCandidates(candidates, clean ? { ...selection, ...ALL } : selection),
      );
      const asked = selected.flatMap(({ kept }) => kept);
      const rule = await ruleOf(judge);
      const solutions = asked.map((candidate) =>
        sampled(problems[candidate.problem] as RunProblem, candidate, stepsBy(candidate.text, rule)),
      );
      const judged =
        (await verdicts?.(solutions, signal)) ?? solutions.map(({ steps }) => steps.map(() => null));
      if (signal.aborted) return undefined;
      const labels = controlled(judged, control, { rights: asked.map(({ right }) => right), chunk: index });
      const labelled = asked.map((candidate, i) => {
        const own = labels[i] ?? [];
        return { ...candidate, right: candidate.right && !(clean && own.includes(0)), labels: own };
      });
      // If the labels of steps decide, right and wrong candidates of a problem are known only now.
      const chosen = clean
        ? selected.map(({ kept: [first] }) =>
            selectCandidates(
              labelled.filter(({ problem }) => problem === first?.problem),
              { ...selection, dedupe: false },
            ),
          )
        : [];
      const kept = clean ? chosen.flatMap(({ kept }) => kept) : labelled;
      const rows = kept.map((candidate) =>
        labelledRecord(problems[candidate.problem] as RunProblem, candidate, candidate.labels, source, rule),
      );
      const steps = rows.flatMap((row) => row.steps);
      // A share of nothing is none.
      const share = (name: string, count: number, of: number): Record<string, number> =>
        of === 0 ? {} : { [name]: count / of };
      const known = steps.filter(({ label }) => label !== null);
      const shares = {
        ...share('right_answers', rows.filter(({ outcome }) => outcome === 1).length, rows.length),
        ...share('right_steps', known.filter(({ label }) => label === 1).length, known.length),
      };
      const left = sums([...selected, ...chosen].map((each) => each.left));
      const metrics = {
        records: rows.length,
        ...shares,
        ...share('unlabelled_steps', steps.length - known.length, steps.length),
        // The costs so far, of a judge that has any.
        ...Object.fromEntries(
          Object.entries(judge?.report?.() ?? {}).map(([name, value]) => [`judge_${name}`, value]),
        ),
        ...Object.fromEntries(Object.entries(left).map(([reason, count]) => [`left_${reason}`, count])),
      };
      return {
        metrics,
        shown: { records: rows.length, ...shares },
        tokens: asked.reduce((sum, { tokens }) => sum + tokens, 0),
        rows: rows.map((row) => ({ ...row })),
      };
    },
    dispose: () => judge?.dispose(),
  });
}

/** Selection that reads no labels. */
const ALL = { balance_per_problem: false, drop_unanimous: false };

/** Domains of the random streams of labels that are turned round, and dealt out anew. */
const FLIPS = 0x666c6970;
const DEALS = 0x6465616c;

type Labels = readonly (readonly StepLabel[])[];

/**
 * The labels after the controls. `rights`: whether each solution has the right answer; `chunk`: the step of the stage,
 * which numbers the random streams.
 */
function controlled(
  solutions: Labels,
  { flip, labels, seed }: LabelControl,
  { rights, chunk }: { readonly rights: readonly boolean[]; readonly chunk: number },
): Labels {
  const turned = flipped(solutions, flip, new PhiloxStream(seed, FLIPS, chunk));
  if (labels === 'none') return turned;
  if (labels === 'wrong') return relabelled(turned, () => 0);
  if (labels === 'outcome') return relabelled(turned, (solution) => (rights[solution] ? 1 : 0));
  const known = turned.flat().filter((label) => label !== null);
  const dealt = shuffled(new PhiloxStream(seed, DEALS, chunk), known).values();
  return relabelled(turned, () => dealt.next().value as 0 | 1);
}

function flipped(solutions: Labels, share: number, draw: PhiloxStream): Labels {
  if (share === 0) return solutions;
  return solutions.map((labels) =>
    labels.map((label) => {
      const turned = draw.uniform() < share;
      return label !== null && turned ? ((1 - label) as 0 | 1) : label;
    }),
  );
}

/** Steps without a label keep none. */
function relabelled(solutions: Labels, next: (solution: number) => 0 | 1): Labels {
  return solutions.map((labels, i) => labels.map((label) => (label === null ? null : next(i))));
}

function sums<Name extends string>(all: readonly Readonly<Record<Name, number>>[]): Record<string, number> {
  const total: Record<string, number> = {};
  for (const each of all)
    for (const [name, count] of Object.entries<number>(each)) total[name] = (total[name] ?? 0) + count;
  return total;
}
