import type { Argv } from 'yargs';
import { DEFAULT_MODEL } from '../../models/saved.js';
import { ending } from '../../native/ending.js';
import { plural } from '../../native/shown.js';
import type { OpenScorerOptions } from '../../scoring/open.js';
import { chosenSampling, withModel } from '../chosen/model-options.js';
import { chosenProblems } from '../chosen/problems.js';
import { type ArgumentsOf, command } from '../line/command.js';
import { Interrupted, UsageError } from '../line/error.js';
import { checkWhole } from '../line/usage.js';
import { printReport } from './output.js';
import { solvingOptions } from './solving-options.js';

type SolveArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  solvingOptions(argv)
    .example('$0 eval solve gsm8k/test.jsonl --model models/qwen --output solved', 'greedy, one sample each')
    .example(
      '$0 eval solve gsm8k/test.jsonl --model runs/mine -n 8 --output solved',
      'pass@k and majority votes of eight samples',
    )
    .example(
      '$0 eval solve gsm8k/test.jsonl --model models/base --examples gsm8k/train.jsonl.gz --shots 8',
      'a base model, shown eight worked examples',
    )
    .example(
      '$0 eval solve gsm8k/test.jsonl --model runs/mine -n 16 --reward-model runs/prm --search --output searched',
      'beam search by a reward model of steps, beside the best of as many tokens',
    )
    .example(
      '$0 eval solve mine.jsonl --problem task --answer result --template "{problem}\\n"',
      'a file of your own',
    );

export const solveCommand = command({
  command: 'solve <data>',
  describe: 'Solve problems and compare the answers with the expected ones',
  builder: options,
  handler: solve,
});

async function solve(given: SolveArguments): Promise<void> {
  const args = withModel(given);
  const sampling = checked(args);
  const { resolveData } = await import('../../run/paths.js');
  const columns =
    args.problem === undefined || args.answer === undefined
      ? undefined
      : { problem: args.problem, answer: args.answer };
  const { files, layouts, problems } = await chosenProblems(
    await resolveData(args.data, 'test', () => 'data'),
    { layout: args.layout, columns, groupBy: args.by },
  );
  const { 'reward-model': reward, judge: judgeName } = args;
  if (judgeName === 'oracle' || reward === 'oracle') {
    const { generatedProblem } = await import('../../scoring/oracle.js');
    // Problems are checked before anything is drawn.
    problems.forEach(generatedProblem);
  }
  const examples =
    args.examples === undefined
      ? []
      : (await chosenProblems(await resolveData(args.examples, 'train', () => '--examples'))).problems;
  if (args.examples !== undefined && examples.length < args.shots)
    console.error(
      `Warning: ${args.examples} has ${plural(examples.length, 'problem')}: so many are shown, not ${args.shots}`,
    );
  const { templateFrom } = await import('./solving-template.js');
  const { runWords } = await import('./run-words.js');
  const words = await runWords({ ...args, template: await templateFrom(args.template) });
  const { openChosenModel } = await import('../chosen/chosen-model.js');
  const { isDataFile, openScorer } = await import('../../scoring/open.js');
  if (args.search && reward !== undefined && isDataFile(reward))
    throw new UsageError(
      `--search writes new solutions, which ${reward} has no scores of; name what scores them`,
    );
  const { admitScorer } = await import('../../rewards/gate.js');
  const { refuseProduct } = await import('../../eval/solving/aggregation.js');
  const { evaluateSolving } = await import('../../eval/solving/evaluate-solving.js');
  const { formatSolvingTable } = await import('../../eval/solving/solving-report.js');
  const { solvingProgress } = await import('./solving-progress.js');
  const { untilInterrupted } = await import('../line/interrupt.js');
  if ([given.model, given.adapter].every((name) => name === undefined))
    console.error(`no model is named: ${args.model} of the package answers; --model names another`);
  using chosen = await openChosenModel(args);
  const { device, model, tokenizer, eosTokenIds } = chosen;
  using interruption = ending(untilInterrupted());
  const progress = await solvingProgress();
  // A model that scores and judges is loaded once.
  const shared: NonNullable<OpenScorerOptions['shared']> = new Map();
  try {
    for (const name of new Set([reward, judgeName]))
      if (name !== undefined) await admitScorer(name, args['accept-weak-reward']);
    const judge =
      judgeName === undefined ? undefined : await openScorer(device, judgeName, { unit: 'step', shared });
    const { 'reward-scorer': part, 'score-column': column } = args;
    const scorer =
      reward === undefined ? undefined : await openScorer(device, reward, { part, column, shared });
    if (scorer && scorer.unit === 'step') refuseProduct(scorer, args.aggregate, '--aggregate');
    const { report } = await evaluateSolving(model, tokenizer, problems.slice(0, args['max-problems']), {
      ...sampling,
      eosTokenIds,
      n: args.n,
      template: words.template,
      chat: words.chat,
      system: args.system,
      examples: examples.slice(0, args.shots),
      maxRows: args['max-rows'],
      expect: args.expect,
      units: args.units,
      digits: args.digits,
      scorer,
      aggregation: args.aggregate,
      untilWrong: args['until-wrong'],
      curves: args.curves,
      search: searchOf(args),
      judge,
      corrections: words.corrections,
      output: args.output,
      about: {
        model: args.run ?? args.model ?? args.adapter ?? DEFAULT_MODEL,
        ...(args.adapter === undefined ? {} : { adapter: args.adapter }),
        files: [...files],
        layouts: [...layouts],
      },
      signal: interruption.signal,
      onProgress: progress.update,
    });
    progress.finish();
    printReport(report, args.json, formatSolvingTable);
  } catch (error) {
    progress.finish();
    if (!interruption.signal.aborted) throw error;
    const done = `Stopped after ${progress.done} of ${plural(progress.total, 'sample')}`;
    throw new Interrupted(
      args.output === undefined
        ? `${done}; none was kept: with --output DIR the next time can go on.`
        : `${done}; all of them are in ${args.output}, and the same command again goes on there.`,
    );
  } finally {
    for (const each of shared.values()) each.dispose();
  }
}

/** Checked before anything is loaded, as all options are. */
function searchOf(args: SolveArguments) {
  if (!args.search) return undefined;
  const { beams, expansions, rounds, 'step-end': end } = args;
  const separator = end === undefined ? {} : { separator: end.replaceAll('\\n', '\n') };
  return { beams, expansions, rounds, ...separator };
}

/** @throws UsageError for an option that would change nothing */
function refuseUnused(args: SolveArguments): void {
  const { 'reward-model': reward, judge, search, examples } = args;
  const needs: readonly (readonly [needed: string, given: unknown, usual: Partial<SolveArguments>])[] = [
    ['--search', search, { beams: 4, expansions: 4, rounds: 40, 'step-end': undefined }],
    ['--reward-model', reward, { aggregate: 'min', 'until-wrong': false, curves: false }],
    ['--reward-model or --judge', reward ?? judge, { 'accept-weak-reward': false }],
    ['--examples', examples, { shots: 4 }],
  ];
  for (const [needed, given, usual] of needs)
    for (const [name, value] of Object.entries(usual))
      if ((given === undefined || given === false) && args[name as keyof SolveArguments] !== value)
        throw new UsageError(`--${name} needs ${needed}`);
}

function checked(args: SolveArguments) {
  const search = { beams: 1, expansions: 1, rounds: 1 };
  checkWhole(args, { n: 1, 'max-rows': 1, 'max-problems': 1, shots: 1, ...search });
  const ks = args.k?.split(',').map(Number);
  if (ks?.some((k) => !(Number.isSafeInteger(k) && k >= 1 && k <= args.n)))
    throw new UsageError(
      `--k expects whole numbers from 1 to ${args.n}, the samples of each problem, with commas between; found ${args.k}`,
    );
  if (!(args.digits >= 1)) throw new UsageError('--digits expects a number of at least 1');
  const { temperature = args.n === 1 ? 0 : 1, 'reward-model': reward } = args;
  if (reward === undefined && args['reward-scorer'] !== undefined)
    throw new UsageError('--reward-scorer chooses one of a run: name it with --reward-model');
  refuseUnused(args);
  if (args.search) {
    if (reward === undefined)
      throw new UsageError('--search goes by the scores of steps: name --reward-model');
    if (temperature === 0)
      throw new UsageError(
        '--search needs several samples, or a --temperature above 0, at which continuations differ; -n 16 has both',
      );
  }
  if (temperature === 0 && args.n > 1)
    throw new UsageError(`at --temperature 0 all ${args.n} samples of a problem are the same`);
  const { stop, ...sampling } = chosenSampling({ ...args, temperature });
  return { ...sampling, ks, ...(args.stop === undefined ? {} : { stop }) };
}
