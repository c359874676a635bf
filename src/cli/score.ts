import type { Argv } from 'yargs';
import type { Aggregation } from '../eval/solving/aggregation.js';
import { DEFAULT_JUDGE } from '../models/saved.js';
import { ending } from '../native/ending.js';
import { plural } from '../native/shown.js';
import type { Scorer } from '../scoring/scorer.js';
import {
  columnOptions,
  modelOptions,
  type NamedRun,
  UNSURE,
  VOTES,
  withModel,
} from './chosen/model-options.js';
import { type ArgumentsOf, argument, command, flag, number, oneOf, text } from './line/command.js';
import { Interrupted, UsageError } from './line/error.js';

type ScoreArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  columnOptions(modelOptions(argv, DEFAULT_JUDGE))
    .positional('file', { ...argument, describe: 'Rows with problem and solution' })
    .option('scorer', { ...text, describe: 'Which scorer of the run, such as outcome [default: its first]' })
    .option('aggregate', {
      ...text,
      default: 'min',
      describe: 'Aggregation of the step scores; several with commas between, or all',
    })
    .option('neutral-score', {
      ...text,
      choices: ['positive', 'negative', 'drop'] as const,
      describe: 'How the class of neutral steps counts, where a model has one [default: as in the run]',
    })
    .option('until-wrong', { ...flag, describe: 'Aggregate up to the first step below one half' })
    .option('unsure', { ...number, describe: UNSURE })
    .option('votes', { ...number, describe: VOTES })
    .option('on-bad-row', {
      ...text,
      ...oneOf(['error', 'skip'], 'error'),
      describe: 'A row without a solution',
    })
    .option('output', {
      ...text,
      describe: 'Directory for scores.jsonl; the same command again goes on there',
    })
    .example('$0 score solutions.jsonl --model runs/prm --output scored', 'a line for each row')
    .example(
      '$0 score out.jsonl --model runs/prm --solution prediction --aggregate min,product,mean',
      'to the terminal',
    )
    .example(
      '$0 score solved/problems.jsonl --model runs/joint --scorer outcome --output scored',
      'every sample of eval solve',
    );

export const scoreCommand = command({
  command: 'score <file>',
  describe: 'Score the steps of solutions by a reward model or judge',
  builder: options,
  handler: score,
});

async function score(given: ScoreArguments): Promise<void> {
  const args = withModel(given, DEFAULT_JUDGE);
  const { run, model: base = run, adapter } = args;
  // An adapter alone is the model.
  const [name, onTop] = base === undefined ? [adapter as string, undefined] : [base, adapter];
  const { AGGREGATIONS, isOfProbabilities, refuseProduct } = await import('../eval/solving/aggregation.js');
  const all = args.aggregate === 'all';
  const aggregations = (all ? [...AGGREGATIONS] : args.aggregate.split(',')) as Aggregation[];
  for (const how of aggregations)
    if (!AGGREGATIONS.includes(how))
      throw new UsageError(`--aggregate expects ${AGGREGATIONS.join(', ')} or all, found ${how}`);
  const { scoredRows } = await import('../eval/score-rows.js');
  const { solutionStream } = await import('../eval/solution-stream.js');
  const { openJournal } = await import('../run/journal.js');
  const { withScorer } = await import('./chosen/chosen-scorer.js');
  const { isNoModel } = await import('../scoring/open.js');
  const { exactText } = await import('../files/exact-json.js');
  const options = {
    device: args.device,
    adapter: onTop,
    otherBase: args['other-base'],
    tokenizer: args.tokenizer,
    dtype: args.dtype,
    quantize: args.quantize,
    part: args.scorer,
    neutralScore: args['neutral-score'],
    unsure: args.unsure,
    votes: args.votes,
    locate: ([, key]: readonly PropertyKey[]) => `--${key === 'base' ? 'model' : String(key)}`,
  };
  await withScorer(name, options, async (scorer, signal) => {
    if (!all) for (const how of aggregations) refuseProduct(scorer, how, '--aggregate');
    await using journal =
      args.output === undefined
        ? undefined
        : ending(
            await openJournal(args.output, 'scores.jsonl', {
              ...(await settingsOf(args, aggregations)),
              ...(isNoModel(name) ? {} : { weights: await fingerprintOf(scorer, args) }),
            }),
          );
    const rows = scoredRows(
      solutionStream(args.file, {
        columns: {
          problem: args.problem,
          solution: args.solution,
          segmentation: scorer.segmentation,
        },
        onBadRow: args['on-bad-row'],
        skip: journal?.rows ?? 0,
      }),
      scorer,
      {
        aggregations: aggregations.filter((how) => scorer.scale === 'probability' || !isOfProbabilities(how)),
        untilWrong: args['until-wrong'],
        signal,
        onUnlike: () => unlike++,
      },
    );
    let done = journal?.rows ?? 0;
    let bad = 0;
    let unlike = 0;
    let silent = 0;
    for await (const row of rows) {
      done++;
      if (row.scores === null) bad++;
      else if (Array.isArray(row.scores) && row.scores.every((score) => score === null)) silent++;
      if (journal) journal.append(row);
      else console.log(exactText(row));
    }
    if (signal.aborted)
      throw new Interrupted(
        journal
          ? `Stopped after ${plural(done, 'solution')}; the same command again goes on in ${args.output}.`
          : 'Stopped; with --output DIR the next time can go on.',
      );
    if (done === 0) throw new UsageError(`${args.file} holds no rows: there is nothing to score`);
    if (bad > 0) console.error(`${bad} rows hold no solution; their lines have an error instead of scores`);
    if (silent > 0)
      console.error(
        `${plural(silent, 'solution')} got no score: the scorer said nothing of any of ${silent === 1 ? 'its' : 'their'} steps`,
      );
    if (unlike > 0)
      console.error(
        `${plural(unlike, 'solution')} unlike all that this judge learned from: their rows say so in warnings, and their scores say little`,
      );
    if (journal) console.error(`wrote ${plural(done, 'solution')} to ${journal.path}`);
  });
}

/** A fingerprint of the model that scores: what it gives to the first solution changes with weights, adapter and dtype. */
async function fingerprintOf(scorer: Scorer, args: ScoreArguments): Promise<string> {
  const { solutionStream } = await import('../eval/solution-stream.js');
  const { sha256 } = await import('../eval/solving/settings.js');
  const columns = { problem: args.problem, solution: args.solution, segmentation: scorer.segmentation };
  for await (const { solution } of solutionStream(args.file, { columns, onBadRow: 'skip' })) {
    if (!solution) continue;
    const [{ scores, outcome } = { scores: [] }] = (await scorer.score([solution])) ?? [];
    return sha256(JSON.stringify([scores, outcome ?? null]));
  }
  return 'no solutions';
}

async function settingsOf(args: ScoreArguments & NamedRun, aggregations: readonly Aggregation[]) {
  const { dataFiles } = await import('../data/files.js');
  const { contentHash } = await import('../files/content-hash.js');
  const { resolve } = await import('node:path');
  return {
    run: args.run === undefined ? (args.model ?? args.adapter ?? null) : resolve(args.run),
    scorer: args.scorer ?? null,
    aggregations: [...aggregations],
    neutral_score: args['neutral-score'] ?? null,
    until_wrong: args['until-wrong'],
    ...(args.unsure === undefined ? {} : { unsure: args.unsure }),
    ...(args.votes === undefined ? {} : { votes: args.votes }),
    problem: args.problem ?? null,
    solution: args.solution ?? null,
    on_bad_row: args['on-bad-row'],
    data: await Promise.all((await dataFiles(args.file)).map(contentHash)),
  };
}
