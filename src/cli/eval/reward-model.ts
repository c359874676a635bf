import type { Argv } from 'yargs';
import type { ProblemKey } from '../../data/overlap.js';
import type { ScoredSolution } from '../../eval/reward-quality.js';
import type { StepRecord } from '../../records/record.js';
import { modelOptions, withModel } from '../chosen/model-options.js';
import { type ArgumentsOf, argument, command, flag, number, text } from '../line/command.js';
import { Interrupted, UsageError } from '../line/error.js';
import { checkWhole } from '../line/usage.js';

type RewardModelArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  modelOptions(argv)
    .positional('data', {
      ...argument,
      describe: 'Labelled solutions that the model has not seen, several of a problem where there are',
    })
    .option('scorer', { ...text, describe: 'Which scorer of the run, such as outcome [default: its first]' })
    .option('max-samples', { ...number, describe: 'Max solutions, from the first [default: all]' })
    .option('json', { ...flag, describe: 'Print the report as JSON' })
    .example(
      '$0 eval reward-model processbench/gsm8k.json.gz --model runs/prm',
      'writes reward-quality.json beside its weights, which ppo, step_kto and eval solve read, and the same as a page (.md, .html)',
    );

export const rewardModelCommand = command({
  command: 'reward-model <data>',
  describe: 'Measure whether a reward model ranks right steps above wrong ones of the same problem',
  builder: options,
  handler: measure,
});

async function measure(given: RewardModelArguments): Promise<void> {
  const args = withModel(given);
  checkWhole(args, { 'max-samples': 1 });
  const { run, model: base = run, adapter } = args;
  if (base === undefined && adapter === undefined) throw new UsageError('name the reward model with --model');
  // An adapter alone is the model.
  const [name, onTop] = base === undefined ? [adapter as string, undefined] : [base, adapter];
  const { join } = await import('node:path');
  const { loadRecords } = await import('../../data/load.js');
  const { formatLoadReport } = await import('../../data/summary.js');
  const { qualityRows, qualitySentences, rewardQuality, standingOf, MIN_AUC } = await import(
    '../../eval/reward-quality.js'
  );
  const { percent } = await import('../../eval/statistics/percent.js');
  const { formatTable } = await import('../../terminal/table.js');
  const { writeJson } = await import('../../files/json-file.js');
  const { REWARD_QUALITY, rewardWeights } = await import('../../rewards/gate.js');
  const { recordScores } = await import('../../eval/record-solution.js');
  const { probabilityOf, verdictsIn } = await import('../../scoring/scorer.js');
  const { certificate } = await import('../../report/certificate.js');
  const { writeFileAtomically } = await import('../../files/atomic-file.js');
  const { resolveData } = await import('../../run/paths.js');
  const { createProgress } = await import('../../terminal/progress.js');
  const { withScorer } = await import('../chosen/chosen-scorer.js');
  const { records, report } = loadRecords(await resolveData(args.data, 'test', () => '<data>'), {
    problems: false,
  });
  const all: StepRecord[] = [];
  for await (const record of records) {
    if (all.length === args['max-samples']) break;
    all.push(record);
  }
  if (all.length === 0) throw new UsageError(`${args.data} holds no labelled solutions`);
  if (report.skipped.size + report.unasked.size > 0)
    for (const line of formatLoadReport(report)) console.error(line);
  const otherBase = args['other-base'];
  const { directory, hash } = await rewardWeights(name, { adapter: onTop, otherBase });
  const options = {
    ...{ device: args.device, part: args.scorer, quantize: args.quantize, dtype: args.dtype },
    ...{ adapter: onTop, otherBase, tokenizer: args.tokenizer },
    locate: ([, key]: readonly PropertyKey[]) => `--${key === 'base' ? 'model' : String(key)}`,
  };
  await withScorer(name, options, async (scorer, signal) => {
    const progress = createProgress({ total: all.length, unit: 'solution' });
    const scored: ScoredSolution[] = [];
    let tokens = 0;
    const start = performance.now();
    for await (const { record, own } of recordScores(scorer, all, signal, (done) => progress.update(done))) {
      const { scores, outcome } = own;
      scored.push({
        record,
        scores: outcome === undefined ? scores : record.steps.map(() => outcome),
        verdicts: verdictsIn(scorer, own),
        ...(scorer.scale === 'reward'
          ? {}
          : {
              probabilities: scores.map((score) => (score === null ? null : probabilityOf(scorer, score))),
            }),
      });
      tokens += own.tokens ?? 0;
    }
    if (signal.aborted) throw new Interrupted('Stopped; nothing was written.');
    progress.finish();
    const quality = rewardQuality(scored, {
      scorer: args.scorer ?? scorer.unit,
      data: report.files,
      unit: scorer.unit === 'outcome' ? 'solutions' : 'steps',
      seconds: (performance.now() - start) / 1000,
      tokens,
      weights: hash,
      trained: await trainedOn(onTop ?? name, all),
    });
    const path = join(directory, REWARD_QUALITY);
    await writeJson(path, quality);
    const pages = certificate(quality, { name: onTop ?? name });
    for (const [end, page] of Object.entries(pages))
      await writeFileAtomically(join(directory, `reward-quality.${end}`), [Buffer.from(page)]);
    if (args.json) return console.log(JSON.stringify(quality, null, 2));
    const boxed = process.stdout.isTTY === true;
    console.log([formatTable(qualityRows(quality), { boxed }), ...qualitySentences(quality)].join('\n'));
    console.log(
      {
        strong: `the interval within problems is above ${percent(MIN_AUC)}: runs may learn from it`,
        weak: `the interval within problems is not above ${percent(MIN_AUC)}: runs refuse it without --accept-weak-reward`,
        unknown: 'no problem has both classes, so nothing is known within problems',
      }[standingOf(quality)],
    );
    console.error(`written to ${path}, with a page beside it as .md and .html`);
  });
}

/** How many of the problems the run `name` trained on too; undefined for a model that is no run, or whose data is not here. */
async function trainedOn(name: string, records: readonly StepRecord[]): Promise<number | undefined> {
  const { configOfRun } = await import('../../methods/config.js');
  const { dividedRecords } = await import('../../run/parts.js');
  const { problemKey, problemOverlap } = await import('../../data/overlap.js');
  const trained: ProblemKey[] = [];
  try {
    const { data } = await configOfRun(name);
    for await (const { part, record } of dividedRecords(data))
      if (part === 'train') trained.push(problemKey(record.problem));
  } catch {
    return undefined;
  }
  return problemOverlap(
    trained,
    records.map(({ problem }) => problemKey(problem)),
  ).same;
}
