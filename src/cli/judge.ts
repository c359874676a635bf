import type { Argv } from 'yargs';
import { DEFAULT_JUDGE, type ModelFiles, namedModel, savedModel } from '../models/saved.js';
import { typedCommand } from '../native/typed-command.js';
import type { Turns } from '../records/turns.js';
import type { StepJudgement } from '../scoring/judge.js';
import { chosenThreshold, QUANTIZED, UNSURE, VOTES } from './chosen/model-options.js';
import { type ArgumentsOf, command, flag, number, text } from './line/command.js';
import { Interrupted, UsageError } from './line/error.js';

/** Explanations of a missing verdict, by whether the judge uses calculations alone. */
const NO_VERDICT = {
  words:
    '– is no verdict: the model would write neither of its words there, or the step was not judged, as it is longer than the model reads or judged at the end alone',
  calculations:
    'not checked: the step writes out no calculation that can be read, so it has neither probability nor verdict',
};

type JudgeArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('run-or-problem', {
      type: 'string',
      describe: `What judges: a run, its adapter/, model/ or reward/, ${DEFAULT_JUDGE} of the package, a classification model, a file of labels, or the address of a server; left out, it is ${DEFAULT_JUDGE}, and the file is the only argument`,
    })
    .positional('problem', {
      type: 'string',
      describe:
        'Text file: the problem, a blank line, then the steps, by lines or by paragraphs; or .json with problem and steps, or with messages and tools; - is standard input',
    })
    .option('model', {
      ...text,
      describe: `What judges, where it is not the first argument [default: ${DEFAULT_JUDGE}]`,
    })
    .option('base', { ...text, describe: 'Base of the adapter, where it is not where the run found it' })
    .option('other-base', { ...flag, describe: 'Also if the adapter was not trained on --base' })
    .option('threshold', {
      ...text,
      describe: 'greedy, or the least probability of a right step [default: as the run has it]',
    })
    .option('unsure', { ...number, describe: UNSURE })
    .option('votes', { ...number, describe: VOTES })
    .option('json', { ...flag, describe: 'Print JSON' })
    .option('quantize', QUANTIZED)
    .option('device', { ...text, default: 'auto', describe: 'auto, cpu or cuda:N' })
    .example('$0 judge problem.txt', 'word problems, by the judge of the package')
    .example('$0 judge runs/quickstart problem.txt', 'a line for each step')
    .example('$0 judge runs/prm solution.json --json', 'for a program');

export const judgeCommand = command({
  command: 'judge [run-or-problem] [problem]',
  describe: 'Judge every step of a solution with a trained model',
  builder: options,
  handler: judge,
});

async function judge(args: JudgeArguments): Promise<void> {
  const { calculationsCount, judgementsIn } = await import('../scoring/judge.js');
  const { probabilityOf } = await import('../scoring/scorer.js');
  const { calculationsIn } = await import('../data/equations/calculations.js');
  const { unparsedSentence } = await import('../scoring/generative/unparsed.js');
  const { unlikeSentence } = await import('../scoring/unlike-training.js');
  const { formatTable } = await import('../terminal/table.js');
  const { withScorer } = await import('./chosen/chosen-scorer.js');
  const threshold = chosenThreshold(args.threshold);
  const [name, file] = namesOf(args);
  const { stepsBy } = await import('../records/segment.js');
  const { problem, turns, ...given } = await readSolution(file);
  const files = await cardOf(name);
  const { base, quantize } = args;
  const onBase = {
    ...(base === undefined ? {} : { adapter: files?.adapter ?? name }),
    otherBase: args['other-base'],
    locate: () => (base === undefined ? 'judge' : '--base'),
  };
  await withScorer(
    base ?? name,
    {
      device: args.device,
      quantize,
      threshold,
      unsure: args.unsure,
      votes: args.votes,
      part: 'judge',
      strict: true,
      ...onBase,
    },
    async (scorer, signal) => {
      const steps = 'steps' in given ? given.steps : stepsBy(given.text, scorer.segmentation);
      const solution = { problem, steps, turns };
      const [own] =
        (await scorer.score([solution], { signal }).catch((error: unknown) => {
          throw signal.aborted ? new Interrupted('Stopped.') : error;
        })) ?? [];
      if (!own) throw new Interrupted('Stopped.');
      const judged = judgementsIn(scorer, solution, own);
      const unparsed = unparsedSentence(scorer);
      if (unparsed !== undefined) console.error(unparsed);
      const { readableResults } = await import('../records/turns.js');
      const results = turns?.steps.map(readableResults);
      const least = probabilityOf(scorer, scorer.threshold);
      if (least !== null && least !== 0.5 && !args.json)
        console.error(`a step is right from p(right) ${least.toFixed(3)} on`);
      if (scorer.unsure !== undefined && !args.json)
        console.error(`unsure: neither verdict has a probability of ${scorer.unsure.toFixed(3)}`);
      const count = files && calculationsCount({ files });
      if (count) console.error(sourceLine(count, steps.map(calculationsIn)));
      const alone = count === 'alone';
      const found = alone ? undefined : own?.unlike;
      const unlike = found ? [unlikeSentence(found)] : [];
      for (const sentence of unlike) console.error(sentence);
      const warnings = [...(scorer.warnings ?? []), ...unlike];
      if (!args.json && judged.some(({ verdict }) => verdict === null))
        console.error(NO_VERDICT[alone ? 'calculations' : 'words']);
      console.log(
        args.json
          ? JSON.stringify(
              {
                problem,
                ...(warnings.length > 0 ? { warnings } : {}),
                ...(least === null ? {} : { threshold: least }),
                ...(scorer.unsure === undefined ? {} : { unsure: scorer.unsure }),
                steps: judged,
              },
              null,
              2,
            )
          : table(judged, formatTable, alone ? 'not checked' : '–', results),
      );
    },
  );
}

/** The sentence on the origin of the verdicts of a judge that computes calculations. */
function sourceLine(count: 'alone' | 'beside words', found: readonly (readonly unknown[])[]): string {
  const own = found.flatMap((calculations, i) => (calculations.length > 0 ? [i + 1] : []));
  const steps =
    own.length === 0 ? 'here no step' : `here ${own.length === 1 ? 'step' : 'steps'} ${own.join(', ')}`;
  return count === 'alone'
    ? `verdicts come from calculations alone, without the words of the model: ${steps} could be computed`
    : `verdicts come from the words of the model and, where a step could be computed, from its calculations: ${steps}`;
}

/** The files with the card of a judge; undefined for a name that is no model, and for a model that is not here. */
async function cardOf(name: string): Promise<ModelFiles | undefined> {
  const { isNoModel } = await import('../scoring/open.js');
  if (isNoModel(name)) return undefined;
  const { kind, adapter } = namedModel(name);
  if (kind === 'elsewhere') return undefined;
  // The base of an adapter may be elsewhere.
  return { model: adapter ?? savedModel(name).directory, adapter };
}

/** The judge and the file: `judge FILE`, or `judge NAME FILE`. */
function namesOf({ 'run-or-problem': first, problem, model }: JudgeArguments): [name: string, file: string] {
  if (first === undefined)
    throw new UsageError(`name the file to judge, as in ${typedCommand('judge problem.txt')}`);
  if (problem === undefined && model === undefined && namedModel(first).kind !== 'elsewhere')
    throw new UsageError(
      `${first} is what judges; name the file to judge too: ${typedCommand(`judge ${first} problem.txt`)}`,
    );
  if (problem === undefined) return [model ?? DEFAULT_JUDGE, first];
  if (model === undefined) return [first, problem];
  throw new UsageError(`there are two judges, ${first} and --model ${model}; name one`);
}

async function readSolution(
  path: string,
): Promise<
  | { readonly problem: string; readonly steps: readonly string[]; readonly turns?: Turns }
  | { readonly problem: string; readonly text: string; readonly turns?: undefined }
> {
  const { readFile } = await import('node:fs/promises');
  const { systemReason } = await import('../files/error.js');
  const name = path === '-' ? 'standard input' : path;
  let content: string;
  try {
    content = await readFile(path === '-' ? '/dev/stdin' : path, 'utf8');
  } catch (error) {
    const { orNearFile } = await import('../files/near-file.js');
    throw new UsageError(`cannot read ${name}: ${systemReason(error)}${orNearFile(path)}`);
  }
  if (content.includes('\0'))
    throw new UsageError(`${name} is no text: expected the problem, a blank line, and the steps, or .json`);
  if (/^\s*\{/.test(content)) return fromJson(content, name);
  const [, problem, rest] = /^\s*([\s\S]*?\S)[ \t]*\r?\n[ \t]*\r?\n([\s\S]*)$/.exec(content) ?? [];
  const text = rest ?? '';
  if (problem === undefined || text.trim() === '')
    throw new UsageError(`${name} holds no solution: expected the problem, a blank line, and the steps`);
  return { problem, text };
}

async function fromJson(content: string, name: string) {
  let row: unknown;
  try {
    row = JSON.parse(content);
  } catch (error) {
    throw new UsageError(
      /^\s*\{.*\}\s*\n\s*\{/.test(content)
        ? `${name} holds several rows, and judge takes one solution; for a file of them: ${typedCommand(`score ${name} --model …`)}`
        : `${name} is not JSON: ${(error as Error).message}; one solution with problem and steps is expected`,
    );
  }
  const turns = await conversationIn(row as Readonly<Record<string, unknown>>, name);
  if (turns) return turns;
  const { question, problem = question, steps } = row as Readonly<Record<string, unknown>>;
  const texts = Array.isArray(steps)
    ? steps.map((step) =>
        typeof step === 'object' && step !== null ? (step as { text?: unknown }).text : step,
      )
    : [];
  if (typeof problem === 'string' && texts.length > 0 && texts.every((step) => typeof step === 'string'))
    return { problem, steps: texts as string[] };
  throw new UsageError(`${name} holds no solution: expected {"problem": "…", "steps": ["…", …]}`);
}

/** The turns of a conversation; undefined for a row of another kind. */
async function conversationIn(row: Readonly<Record<string, unknown>>, name: string) {
  const { readsAsTurns, turnSolutions } = await import('../data/solution-rows.js');
  const { BadRow } = await import('../data/bad-row.js');
  if (!readsAsTurns(row)) return undefined;
  let found: ReturnType<typeof turnSolutions>;
  try {
    found = turnSolutions(row);
  } catch (error) {
    if (!(error instanceof BadRow)) throw error;
    throw new UsageError(`${name}: ${error.message}`);
  }
  if (found.length !== 1)
    throw new UsageError(
      `${name} holds ${found.length} conversations, and judge takes one; for all of them: ${typedCommand(`score ${name} --model …`)}`,
    );
  return found[0];
}

const inOneLine = (of: string) => of.replaceAll(/\s*\n\s*/g, ' ⏎ ');

/** @param results what came back after each turn of a conversation */
function table(
  judged: readonly StepJudgement[],
  formatTable: typeof import('../terminal/table.js').formatTable,
  none: string,
  results: readonly (readonly string[])[] = [],
): string {
  const isReward = judged.some(({ score, probability }) => score !== probability);
  // The sentence above says it of all such steps, and their probability says nothing.
  const isUnlike = ({ verdict, unlikeTraining }: StepJudgement) =>
    verdict === 'unsure' && unlikeTraining === true;
  const rows = judged.map((own, i) => [
    String(i + 1),
    own.probability === null || isUnlike(own) ? '–' : own.probability.toFixed(3),
    ...(isReward ? [own.score === null ? '–' : own.score.toFixed(2)] : []),
    own.verdict ?? none,
    inOneLine(own.step),
  ]);
  const heads = ['step', 'p(right)', ...(isReward ? ['reward'] : []), 'verdict', 'text'];
  const [head = '', ...lines] = formatTable([heads, ...rows], { isLeft: (i) => i >= heads.length - 2 }).split(
    '\n',
  );
  const indent = ' '.repeat(head.lastIndexOf('text'));
  const reasonLines = (own: StepJudgement | undefined) =>
    own?.reason === undefined || isUnlike(own) ? [] : [`${indent}reason: ${inOneLine(own.reason)}`];
  const under = (i: number) => [
    ...reasonLines(judged[i]),
    ...(results[i] ?? []).map((result) => `${indent}${result}`),
  ];
  return [head, ...lines.flatMap((line, i) => [line, ...under(i)])].join('\n');
}
