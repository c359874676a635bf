import type { Argv } from 'yargs';
import { SOURCE_NAMES } from '../../data/sources/source.js';
import { LARGEST_SERVED_TEMPERATURE } from '../../generate/options.js';
import { type ArgumentsOf, command, flag, number, oneOf, text } from '../line/command.js';
import { Interrupted, UsageError } from '../line/error.js';
import { checkNewFile, checkWhole } from '../line/usage.js';
import { printReport } from './output.js';

type JudgeEvaluationArguments = ArgumentsOf<typeof options>;

const options = (argv: Argv) =>
  argv
    .positional('data', {
      ...text,
      demandOption: true,
      describe: 'Labelled solutions, such as ProcessBench: a file, a directory, a pattern or a hub id',
    })
    .option('url', {
      ...text,
      demandOption: true,
      describe: 'Base URL of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1',
    })
    .option('model', { ...text, default: 'default', describe: 'Name of the model at that server' })
    .option('api-key-env', {
      ...text,
      default: 'OPENAI_API_KEY',
      describe: 'Environment variable with the key, if the server wants one',
    })
    .option('source', {
      ...text,
      ...oneOf(['auto', ...SOURCE_NAMES], 'auto'),
      describe: 'Layout of the rows; auto goes by their columns',
    })
    .option('max-samples', { ...number, alias: 'max-problems', describe: 'Max solutions, from the first' })
    .option('temperature', { ...number, default: 0, describe: 'Temperature of the judge' })
    .option('max-tokens', { ...number, default: 1024, describe: 'Max tokens of a judgement' })
    .option('retries', {
      ...number,
      default: 2,
      describe: 'Repeated requests after a judgement that cannot be read',
    })
    .option('concurrency', { ...number, default: 8, describe: 'Requests at once' })
    .option('requests-per-minute', {
      ...number,
      default: 0,
      describe: 'Max requests in a minute; 0: no limit',
    })
    .option('timeout', { ...number, default: 120, describe: 'Seconds to wait for the server' })
    .option('token-budget', { ...number, default: 0, describe: 'Stop after this many tokens; 0: no limit' })
    .option('cache', { ...text, describe: 'File of judgements: nothing is asked, or paid for, twice' })
    .option('output', { ...text, describe: 'New .json file for the report' })
    .option('json', { ...flag, describe: 'Print the report as JSON' })
    .example(
      '$0 eval judge processbench/math.jsonl --url http://127.0.0.1:8000/v1 --model critic --cache judged.jsonl',
      'before a run lets it label: judge.kind llm',
    );

export const judgeEvaluationCommand = command({
  command: 'judge <data>',
  describe: 'Measure how well a language model behind a server labels steps whose labels are known',
  builder: options,
  handler: evaluateJudge,
});

/** Least value by option. */
const LEAST = {
  'max-samples': 1,
  'max-tokens': 1,
  retries: 0,
  concurrency: 1,
  'requests-per-minute': 0,
  timeout: 1,
  'token-budget': 0,
} as const;

async function evaluateJudge(args: JudgeEvaluationArguments): Promise<void> {
  check(args);
  const { resolveData } = await import('../../run/paths.js');
  const { loadRecords } = await import('../../data/load.js');
  const { llmJudge } = await import('../../scoring/server/llm.js');
  const { formatAgreement, judgeAgreement } = await import('../../eval/agreement.js');
  const { untilInterrupted } = await import('../line/interrupt.js');
  const { createProgress } = await import('../../terminal/progress.js');
  const data = await resolveData(args.data, 'test', () => 'data');
  const records = [];
  for await (const record of loadRecords(data, { source: args.source }).records) {
    if (records.length === args['max-samples']) break;
    if (record.steps.some(({ label }) => label !== null)) records.push(record);
  }
  if (records.length === 0)
    throw new UsageError(`${args.data} has no labelled steps, so there is nothing to agree with`);
  const judge = llmJudge({
    ...{ url: args.url, model: args.model, apiKey: process.env[args['api-key-env']] },
    ...{ temperature: args.temperature, maxTokens: args['max-tokens'], retries: args.retries },
    ...{ concurrency: args.concurrency, requestsPerMinute: args['requests-per-minute'] },
    ...{ timeout: args.timeout, tokenBudget: args['token-budget'], cache: args.cache },
  });
  const interruption = untilInterrupted();
  const progress = createProgress({ total: records.length, unit: 'solution' });
  try {
    const { signal } = interruption;
    const report = await judgeAgreement(judge, records, {
      signal,
      onProgress: (done) => progress.update(done),
    });
    progress.finish();
    if (args.output !== undefined) {
      const { writeJson } = await import('../../files/json-file.js');
      await writeJson(args.output, report);
    }
    printReport(report, args.json, formatAgreement);
  } catch (error) {
    if (!interruption.signal.aborted) throw error;
    const kept =
      args.cache === undefined
        ? 'with --cache FILE the next time can go on'
        : `${args.cache} has what was answered`;
    throw new Interrupted(`Stopped; ${kept}.`);
  } finally {
    progress.finish();
    interruption.dispose();
  }
}

function check(args: JudgeEvaluationArguments): void {
  if (!/^https?:\/\//.test(args.url) || !URL.canParse(args.url))
    throw new UsageError(
      `--url expects the address of a server, such as http://127.0.0.1:8000/v1, found ${args.url}`,
    );
  checkWhole(args, LEAST);
  if (!(args.temperature >= 0))
    throw new UsageError(`--temperature expects a number of at least 0, found ${args.temperature}`);
  if (args.temperature > LARGEST_SERVED_TEMPERATURE)
    throw new UsageError(
      `--temperature expects a number of at most ${LARGEST_SERVED_TEMPERATURE}, which is all that such a server takes, found ${args.temperature}`,
    );
  checkNewFile(args.output, '.json', '--output');
}
