import type { Argv } from 'yargs';
import type { PlacedSolution } from '../eval/solution-stream.js';
import { ending } from '../native/ending.js';
import { plural, shown } from '../native/shown.js';
import { typedCommand } from '../native/typed-command.js';
import type { StepRecord } from '../records/record.js';
import {
  chosenSampling,
  columnOptions,
  MAX_ROWS,
  modelOptions,
  samplingOptions,
  withModel,
} from './chosen/model-options.js';
import type { OpenLabeller } from './label/labeller.js';
import { type ArgumentsOf, argument, command, flag, number, text } from './line/command.js';
import { Interrupted, UsageError } from './line/error.js';
import { checkWhole } from './line/usage.js';

type LabelArguments = ArgumentsOf<typeof options>;

const MAX_NEW_TOKENS = 512;
const SEPARATOR = '\\n';

const options = (argv: Argv) =>
  samplingOptions(columnOptions(modelOptions(argv)), { maxNewTokens: MAX_NEW_TOKENS, temperature: 1 })
    .positional('file', {
      ...argument,
      describe: 'Rows with problem, solution and answer, or problems.jsonl of eval solve',
    })
    .option('k', {
      ...number,
      describe: 'Completions after each step [default: 8]; with --complete tries [default: 1]',
    })
    .option('complete', {
      ...flag,
      describe:
        'Instead of labelling steps: finish unfinished solutions and grade all, for models of outcomes',
    })
    .option('oracle', {
      ...text,
      conflicts: ['model', 'adapter'],
      describe: 'Instead of a model: the generated problems (of data problems) with their plans',
    })
    .option('reference', {
      ...text,
      conflicts: ['model', 'adapter', 'oracle'],
      describe:
        'Instead of a model: problems with worked solutions; wrong is the first line with an equation that does not hold or a value that they do not have',
    })
    .option('results', {
      ...flag,
      describe:
        'Instead of a model, of conversations with tools: a turn is wrong whose result has a nonzero exit code, failed tests or an error; the last one by the answer',
    })
    .option('judge', {
      ...text,
      conflicts: ['model', 'adapter', 'oracle', 'reference', 'environment'],
      describe:
        'Instead of completions: the verdicts of a judge of steps or turns, by name: a run, or http://HOST/v1#MODEL',
    })
    .option('rubric', {
      ...text,
      implies: 'judge',
      describe:
        'Further instructions, or a file of them, for a --judge that is a language model at an address',
    })
    .option('environment', {
      ...text,
      conflicts: ['oracle', 'reference'],
      describe:
        'For conversations with tools: replay the turns up to each one in this environment, and let -k episodes go on from there',
    })
    .option('until-wrong', {
      ...flag,
      describe: 'Stop at the first step from which no completion is right',
    })
    .option('template', { ...text, describe: 'Prompt with {problem}, or a file with such a text' })
    .option('chat', {
      type: 'boolean',
      describe: 'Ask as the user of a chat [default: with a chat template]',
    })
    .option('system', { ...text, describe: 'A system message before it' })
    .option('separator', { ...text, default: SEPARATOR, describe: 'Between the steps of a solution' })
    .option('answer', { ...text, describe: 'Column of the answers [default: gold_answer or answer]' })
    .option('max-rows', MAX_ROWS)
    .option('output', {
      ...text,
      demandOption: true,
      describe: 'Directory for labels.jsonl; the same command again goes on there',
    })
    .example(
      '$0 label solved/problems.jsonl --model runs/solver -k 8 --output labels',
      'hard and soft labels',
    )
    .example('$0 label solved/problems.jsonl --oracle problems.jsonl --output labels', 'exact ones')
    .example(
      '$0 label solved/problems.jsonl --reference gsm8k/train.jsonl.gz --output labels',
      'by exact arithmetic',
    )
    .example('$0 run prm.yaml --set data.train=labels/labels.jsonl', 'a reward model that learns them')
    .example('$0 label traces.jsonl --results --output labels', 'turns of agents, by exit codes and tests')
    .example(
      '$0 label traces.jsonl --environment calculator --model runs/agent --output labels',
      'turns of agents, by episodes that go on from them',
    )
    .example(
      '$0 label records.jsonl --complete --model runs/solver --output whole',
      'whole solutions for a model of outcomes',
    );

export const labelCommand = command({
  command: 'label <file>',
  describe:
    'Label steps of solutions and turns of agents: by completions, results or a judge; finish solutions',
  builder: options,
  handler: label,
});

/** Solutions labelled at a time; a stop loses at most so many. */
const BATCH = 8;

async function label(args: LabelArguments): Promise<void> {
  checkWhole(args, { k: 1, 'max-rows': 1 });
  for (const name of ['oracle', 'reference', 'until-wrong', 'results', 'judge'] as const)
    if (args.complete && args[name])
      throw new UsageError(
        `--complete labels no steps, and --${name} is about labels of steps; leave one out`,
      );
  for (const name of ['model', 'adapter', 'oracle', 'reference', 'judge', 'environment'] as const)
    if (args.results && args[name] !== undefined)
      throw new UsageError(`--results labels by what came back, without --${name}; leave one out`);
  for (const name of ['complete', 'until-wrong'] as const)
    if (args.environment !== undefined && args[name])
      throw new UsageError(
        `--environment labels every turn by episodes, and --${name} is about texts; leave one out`,
      );
  refuseUnused(args);
  const { inBatches, solutionStream } = await import('../eval/solution-stream.js');
  const { openJournal } = await import('../run/journal.js');
  const { untilInterrupted } = await import('./line/interrupt.js');
  const { createProgress } = await import('../terminal/progress.js');
  const { dataFiles } = await import('../data/files.js');
  const { contentHash } = await import('../files/content-hash.js');
  const columns = { problem: args.problem, solution: args.solution, answer: args.answer };
  using interruption = ending(untilInterrupted());
  const { signal } = interruption;
  const cost = await costOf(solutionStream(args.file, { columns }), args);
  if (cost.solutions === 0)
    throw new UsageError(`${args.file} holds no solutions: there is nothing to label`);
  using labeller = ending(await openLabeller(args, signal));
  const data = await Promise.all((await dataFiles(args.file)).map(contentHash));
  const settings = JSON.parse(JSON.stringify({ ...labeller.settings, ...columns, data }));
  await using journal = ending(await openJournal(args.output, 'labels.jsonl', settings));
  using progress = ending(createProgress({ total: cost.solutions, unit: 'solution' }));
  let done = journal.rows;
  console.error(cost.sentence + (done > 0 ? `; already labelled: ${plural(done, 'solution')}` : ''));
  for await (const batch of inBatches(solutionStream(args.file, { columns, skip: done }), BATCH)) {
    for (const { solution, where } of batch)
      if (solution?.turns && !readsTurns(args))
        throw new UsageError(
          `${where}: this row is a conversation with tools, whose turns are labelled by --results, --judge or --environment`,
        );
    const found = signal.aborted ? undefined : await labeller.label(batch);
    if (!found) break;
    for (const record of found) journal.append({ ...record });
    done += found.length;
    progress.update(done);
  }
  progress.finish();
  if (signal.aborted)
    throw new Interrupted(
      `Stopped after ${plural(done, 'solution')}; the same command again goes on in ${args.output}.`,
    );
  console.error(`${done} ${args.complete ? '' : 'labelled '}solutions are in ${journal.path}`);
  if (args.complete) await sayUnfinished(journal.path);
  else if (!isOfModel(args)) await sayUnlabelled(journal.path, labelsBy(args));
}

/** Options of completions with their defaults. */
const OF_COMPLETIONS = {
  ...{ k: undefined, 'max-new-tokens': MAX_NEW_TOKENS, temperature: 1, 'top-k': 0, 'top-p': 1, 'min-p': 0 },
  ...{ seed: 0, 'max-rows': undefined, tokenizer: undefined, dtype: undefined, quantize: undefined },
  'other-base': undefined,
};
/** Those of them that are about texts, not about episodes. */
const OF_TEXTS = {
  ...{ stop: undefined, 'until-wrong': false, template: undefined, chat: undefined, system: undefined },
  separator: SEPARATOR,
};

/** @throws UsageError for an option that would change nothing */
function refuseUnused(args: LabelArguments): void {
  const { environment } = args;
  const way = (['results', 'judge', 'oracle', 'reference'] as const).find((name) => args[name]);
  if (way === undefined && environment === undefined) return;
  const unused: Readonly<Record<string, unknown>> = way ? { ...OF_COMPLETIONS, ...OF_TEXTS } : OF_TEXTS;
  const found = Object.entries(unused).find(
    ([name, usual]) => (args as Record<string, unknown>)[name] !== usual,
  );
  if (found !== undefined)
    throw new UsageError(
      `--${way ?? 'environment'} draws no ${way ? 'completions' : 'texts'}, and --${found[0]} is about them; leave one out`,
    );
}

/** Whether the labels are for turns of conversations too. */
const readsTurns = ({ results, judge, environment }: LabelArguments): boolean =>
  results === true || judge !== undefined || environment !== undefined;

async function openLabeller(args: LabelArguments, signal: AbortSignal): Promise<OpenLabeller> {
  const { turnLabeller } = await import('./label/turns.js');
  if (readsTurns(args)) return turnLabeller({ ...args, k: completionsOf(args) }, signal);
  if (args.reference !== undefined) return byProblems('reference', args.reference);
  return args.oracle === undefined ? byModel(args, signal) : byProblems('oracle', args.oracle);
}

const isOfModel = ({ oracle, reference, results, judge }: LabelArguments) =>
  oracle === undefined && reference === undefined && !results && judge === undefined;

const completionsOf = ({ k, complete }: LabelArguments): number => k ?? (complete ? 1 : 8);

/** Prints what --complete could not finish. */
async function sayUnfinished(path: string): Promise<void> {
  const { objectRows } = await import('../data/rows.js');
  let open = 0;
  for await (const { row } of objectRows(path)) if (row.outcome === undefined) open++;
  if (open > 0)
    console.error(
      `${open} of them are still unfinished, and have no outcome: no completion came to its end; raise -k or --max-new-tokens`,
    );
}

/** Prints how many solutions got no label, such as those on which a judge gave no answer that can be read. */
async function sayUnlabelled(path: string, by: string): Promise<void> {
  const { objectRows } = await import('../data/rows.js');
  let empty = 0;
  for await (const { row } of objectRows(path))
    if (Array.isArray(row.steps) && row.steps.every((step: { label?: unknown }) => step.label === null))
      empty++;
  if (empty > 0)
    console.error(
      `Warning: ${empty} of them ${empty === 1 ? 'has' : 'have'} no label on any step: ${by} said nothing that can be read as one`,
    );
}

/** Prints the greatest possible cost, from the file alone, and finds bad rows before anything is drawn. */
async function costOf(solutions: AsyncIterable<PlacedSolution>, args: LabelArguments) {
  const { rolloutPrefixes } = await import('../eval/completions/rollout-labels.js');
  const { DataError } = await import('../files/data-error.js');
  const { isUnfinished } = await import('../eval/completions/completed-solutions.js');
  const count = { solutions: 0, prefixes: 0 };
  for await (const { solution, where } of solutions) {
    if (!solution) continue;
    if (solution.answer === undefined && isOfModel(args) && args.environment === undefined)
      throw new DataError(
        'row',
        `${where}: there is no answer to compare with; name its column with --answer`,
      );
    count.solutions++;
    count.prefixes += args.complete
      ? Number(isUnfinished(solution))
      : args.environment === undefined
        ? rolloutPrefixes(solution).length
        : solution.steps.length;
  }
  const completions = count.prefixes * completionsOf(args);
  const tokens = completions * args['max-new-tokens'];
  const sentence = isOfModel(args)
    ? `${plural(count.solutions, 'solution')}, ${count.prefixes} ${args.complete ? 'of them unfinished' : 'prefixes'}, ${completions} completions${args['until-wrong'] ? ' at most' : ''} ` +
      `of up to ${args['max-new-tokens']} tokens: at most ${tokens.toLocaleString('en-US')} tokens are drawn`
    : `${plural(count.solutions, 'solution')}, judged by ${labelsBy(args)}: nothing is drawn`;
  return { ...count, sentence };
}

/** Names what labels are from, where that is no model of one's own. */
function labelsBy({ oracle, results, judge }: LabelArguments): string {
  if (results) return 'what came back for their turns';
  if (judge !== undefined) return judge;
  return `the ${oracle === undefined ? 'worked solutions' : 'plans'} of their problems`;
}

async function byModel(given: LabelArguments, signal: AbortSignal): Promise<OpenLabeller> {
  const args = withModel(given);
  const sampling = chosenSampling(args);
  const { openChosenModel } = await import('./chosen/chosen-model.js');
  const { templateFrom } = await import('./eval/solving-template.js');
  const { solvingPrompt } = await import('../generate/solving-prompt.js');
  const { rolloutLabels } = await import('../eval/completions/rollout-labels.js');
  const { completedSolutions } = await import('../eval/completions/completed-solutions.js');
  const { runWords } = await import('./eval/run-words.js');
  const { modelFingerprint } = await import('../eval/solving/settings.js');
  const { template, chat } = await runWords({ ...args, template: await templateFrom(args.template) });
  const chosen = await openChosenModel(args);
  const { model, tokenizer, eosTokenIds } = chosen;
  const prompt = solvingPrompt(tokenizer, { template, chat, system: args.system });
  const separator = args.separator.replaceAll('\\n', '\n');
  const options = {
    ...sampling,
    stop: args.stop ?? prompt.stop,
    k: completionsOf(args),
    separator,
    untilWrong: args['until-wrong'],
  };
  const rows = args['max-rows'] === undefined ? {} : { maxRows: args['max-rows'] };
  const drawn = { ...options, prompt, eosTokenIds, ...rows, signal };
  const make = args.complete ? completedSolutions : rolloutLabels;
  return {
    settings: {
      ...options,
      ...(args.complete ? { complete: true } : {}),
      template: prompt.template,
      chat: prompt.chat,
      system: args.system,
      model: args.run ?? args.model,
      adapter: args.adapter,
      weights: await modelFingerprint(model, tokenizer),
    },
    label: (batch) =>
      make(
        model,
        tokenizer,
        batch.flatMap(({ solution, index }) =>
          solution ? [{ ...solution, answer: solution.answer as string, index }] : [],
        ),
        drawn,
      ),
    dispose: () => chosen[Symbol.dispose](),
  };
}

/** A labeller that uses the file's entry on each problem: its plan for the oracle, or its worked solution. */
async function byProblems(option: 'oracle' | 'reference', path: string): Promise<OpenLabeller> {
  const { loadProblems } = await import('../data/benchmarks/load.js');
  const { firstDifference } = await import('../data/equations/first-difference.js');
  const { oracleRecord } = await import('../data/problems/oracle.js');
  const { DataError } = await import('../files/data-error.js');
  const { problemText } = await import('../records/same-text.js');
  const { resolveData } = await import('../run/paths.js');
  const resolved = await resolveData(path, 'test', () => `--${option}`);
  const { problems } = await loadProblems(resolved);
  const { dataFiles } = await import('../data/files.js');
  const { contentHash } = await import('../files/content-hash.js');
  const problemsHash = await Promise.all((await dataFiles(resolved)).map(contentHash));
  const known = new Map<string, (typeof problems)[number]>();
  for (const each of problems) {
    const key = problemText(each.problem);
    const { answer = each.answer } = known.get(key) ?? {};
    if (answer !== each.answer)
      throw new DataError(
        'file',
        `${path}: the problem ${shown(each.problem)} stands there with the answer ${shown(answer)} and with ${shown(each.answer)}; leave one`,
      );
    known.set(key, each);
  }
  const labelled = ({ solution, where }: PlacedSolution): StepRecord[] => {
    if (!solution) return [];
    const found = known.get(problemText(solution.problem));
    if (option === 'oracle' && found?.generated)
      return [oracleRecord(found.generated, solution.steps, solution)];
    if (option === 'reference' && found?.solution !== undefined)
      return [firstDifference({ ...found, solution: found.solution }, solution)];
    const missing =
      option === 'oracle'
        ? `plan of this problem; make the file with: ${typedCommand('data problems')}`
        : 'worked solution of this problem; name the file that the problems are from';
    throw new DataError('row', `${where}: ${path} has no ${missing}`);
  };
  return {
    settings: { [option]: path, problems: problemsHash },
    label: async (batch) => batch.flatMap(labelled),
    dispose() {},
  };
}
