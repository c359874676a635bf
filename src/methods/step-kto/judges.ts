/** Opens the judges that a configuration names, all behind the interface `StepJudge`. */
import { parse } from 'yaml';
import { z } from 'zod';
import { loadModel } from '../../api/model.js';
import { prompt } from '../../config/data.js';
import { model } from '../../config/model.js';
import { fileJudge } from '../../eval/judges/file.js';
import { llmJudge } from '../../eval/judges/llm.js';
import type { StepJudge } from '../../eval/solving/judging.js';
import { oracleJudge } from '../../eval/solving/oracle.js';
import { stepScores } from '../../eval/solving/step-scores.js';
import { verdictScorer } from '../../eval/verdict-scorer.js';
import { readRunConfig } from '../../run/directory.js';
import { RunError } from '../../run/error.js';
import { configuredTokenizer } from '../../run/tokenizer.js';
import { trainedModel } from '../../run/trained-model.js';
import type { Device } from '../../runtime/device.js';
import type { StepKtoRunConfig } from './config.js';

export interface OpenJudge extends StepJudge {
  /** Of an LLM: what it cost and did not answer. */
  report?(): Readonly<Record<string, number>>;
  dispose(): void;
}

/** The judge that labels; undefined: steps get no labels. */
export async function openLabelJudge(
  { judge, run }: StepKtoRunConfig,
  device: Device,
): Promise<OpenJudge | undefined> {
  switch (judge.kind) {
    case 'none':
      return undefined;
    case 'oracle':
      return lasting(oracleJudge);
    case 'file':
      return lasting(await fileJudge(judge.path as string));
    case 'run':
      return runJudge(judge.path as string, device);
    case 'llm': {
      const key = process.env[judge.api_key_env];
      return lasting(
        llmJudge({
          ...judge,
          apiKey: key,
          maxTokens: judge.max_tokens,
          requestsPerMinute: judge.requests_per_minute,
          tokenBudget: judge.token_budget,
          costBudget: judge.cost_budget,
          price: { input: judge.price_input, output: judge.price_output },
          cache: judge.cache ?? `${run.output_dir}/judge-cache.jsonl`,
          spending: `${run.output_dir}/judge-spending.jsonl`,
        }),
      );
    }
  }
}

/** The judge that evaluates. */
export async function openEvaluationJudge(
  { eval: { judge, judge_run } }: StepKtoRunConfig,
  device: Device,
): Promise<OpenJudge | undefined> {
  if (judge === 'none') return undefined;
  return judge === 'oracle' ? lasting(oracleJudge) : runJudge(judge_run as string, device);
}

const lasting = (judge: StepJudge & Pick<OpenJudge, 'report'>): OpenJudge => ({ ...judge, dispose() {} });

/** What a judge needs of another run's configuration, whatever its method. */
const judgeConfig = z.object({
  model,
  prompt,
  data: z.object({ max_length: z.number() }),
  eval: z.object({ threshold: z.union([z.literal('greedy'), z.number()]).default('greedy') }).optional(),
});

/** The verdict model of another run. */
async function runJudge(run: string, device: Device): Promise<OpenJudge> {
  const parsed = judgeConfig.safeParse(parse(await readRunConfig(run)));
  if (!parsed.success)
    throw new RunError(`${run} is not a run whose model judges steps; method sft or stepamc makes one`);
  const { model: section, prompt, data, eval: evaluation } = parsed.data;
  const { model: directory, adapter } = trainedModel(run, section.base);
  const tokenizer = await configuredTokenizer(section);
  const loaded = await loadModel(device, directory, { adapter, dtype: section.dtype });
  const { decoder } = loaded;
  const scorer = verdictScorer(decoder, {
    tokenizer,
    prompt,
    maxLength: Math.min(data.max_length, decoder.config.maxPositions),
    skipUnreadable: true,
    role: loaded.adapter ? { adapter: loaded.adapter } : {},
  });
  const threshold = evaluation?.threshold;
  const scores = stepScores(scorer, { name: run, ...(typeof threshold === 'number' ? { threshold } : {}) });
  return { name: run, judge: scores.judge, dispose: () => loaded.dispose() };
}

/** Opened at the first question, so that it takes no memory while the policy learns. */
export function lazily(open: () => Promise<OpenJudge | undefined>): OpenJudge {
  let opened: Promise<OpenJudge | undefined> | undefined;
  let known: OpenJudge | undefined;
  const get = async () => {
    opened ??= open();
    known = await opened;
    return known;
  };
  return {
    name: 'judge',
    async judge(solutions, signal) {
      const judge = await get();
      return judge ? judge.judge(solutions, signal) : solutions.map(({ steps }) => steps.map(() => null));
    },
    report: () => known?.report?.() ?? {},
    dispose() {
      known?.dispose();
      opened = known = undefined;
    },
  };
}
