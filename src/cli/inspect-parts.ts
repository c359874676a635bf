// Rows of `steptrain inspect`, for each kind of file.
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { countParameters, readModelConfig } from '../architectures/table.js';
import { loadProblems } from '../data/benchmarks/load.js';
import { loadRecords } from '../data/load.js';
import { formatLoadReport } from '../data/summary.js';
import { DataError } from '../files/data-error.js';
import { configOfRun } from '../methods/config.js';
import { type ModelCard, readCard } from '../models/card.js';
import { openDecoderWeights } from '../models/load.js';
import { namedModel } from '../models/saved.js';
import { typedCommand } from '../native/typed-command.js';
import { normalizeProblem } from '../records/record.js';
import { checkedCheckpoint } from '../run/checkpoint.js';
import { readLog } from '../run/log-file.js';
import { resolveData } from '../run/paths.js';
import { resolveSaved } from '../run/resolve-saved.js';
import { formatBytes } from '../terminal/progress.js';
import { loadTokenizer } from '../tokenizer/load.js';
import { readRunState } from '../train/checkpoint.js';
import { openAdapterWeights, readAdapterConfig } from '../weights/adapter.js';
import type { TargetModules } from '../weights/adapter-config.js';
import type { CheckpointReader } from '../weights/checkpoint.js';
import { quantizedBytes } from '../weights/quantized/format.js';
import { UsageError } from './line/error.js';

type Row = readonly [name: string, value: string];

/** Prefix of the row `files` of a damaged checkpoint. */
export const DAMAGED = 'damaged: ';

const count = (value: number) => value.toLocaleString('en');

export async function model(path: string): Promise<Row[]> {
  const { directory } = await resolveSaved(path, { locate: () => 'inspect model' });
  const config = readModelConfig(directory);
  // Weights that do not fit the configuration are refused, as by everything that loads them.
  const weights = openDecoderWeights(directory, config);
  weights.close();
  return [
    ['directory', resolve(directory)],
    [
      'type',
      `${config.modelType}, ${config.head.kind === 'causal' ? 'language model' : `${config.head.kind} classifier`}`,
    ],
    ['parameters', count(countParameters(config))],
    ['stored', stored(weights)],
    ['layers', `${config.numLayers} of width ${count(config.hiddenSize)}`],
    [
      'vocabulary',
      `${count(config.vocabSize)}${config.tieWordEmbeddings ? ', head tied to the embedding' : ''}`,
    ],
    ['longest', `${count(config.maxPositions)} tokens`],
    ...(await tokenizerRow(directory)),
    ...cardRows(readCard(directory)),
  ];
}

export async function adapter(name: string): Promise<Row[]> {
  const { adapter: path } = namedModel(name);
  if (path === undefined) throw new UsageError(`${name} is no adapter: it has no adapter_config.json`);
  const { r, loraAlpha, useRslora, targetModules, modulesToSave, taskType, baseModel, ...others } =
    readAdapterConfig(path);
  const patterns = Object.entries({ rank_pattern: others.rankPattern, alpha_pattern: others.alphaPattern })
    .filter(([, pattern]) => Object.keys(pattern).length > 0)
    .map(([name, pattern]) => `, ${name} ${JSON.stringify(pattern)}`);
  const file = openAdapterWeights(path);
  file.close();
  const pairs = [...file.tensors.keys()].filter((name) => name.includes('lora_A')).length;
  const card = readCard(path);
  return [
    ['directory', resolve(path)],
    [
      'rank',
      `${r}, scaled by ${(useRslora ? loraAlpha / Math.sqrt(r) : loraAlpha / r).toPrecision(3)}${patterns.join('')}`,
    ],
    ['modules', `${pairs} (${targets(targetModules)})`],
    ...(modulesToSave.length > 0 ? [['kept whole', modulesToSave.join(', ')] as const] : []),
    ['stored', stored(file)],
    ['task', taskType ?? 'not said'],
    ['base', card?.base ?? baseModel ?? 'not said'],
    ...(await tokenizerRow(path)),
    ...cardRows(card),
  ];
}

export async function checkpoint(path: string): Promise<Row[]> {
  if (!existsSync(path)) throw new UsageError(`there is no ${path}`);
  const { step, bytes, damage } = await checkedCheckpoint(path);
  if (step === undefined && !/^step-\d+$/.test(basename(resolve(path))))
    throw new UsageError(
      `${path} is no checkpoint: it has no readable checkpoint.json; expected a checkpoints/step-N of a run`,
    );
  const whole: Row = ['files', damage === undefined ? `whole, ${formatBytes(bytes)}` : `${DAMAGED}${damage}`];
  if (step === undefined || damage !== undefined) return [whole];
  const state = await readRunState(path);
  const stage = state.stages[state.stage];
  return [
    ['step', `${count(state.step)} of all stages`],
    [
      'stage',
      stage === undefined
        ? `all are done: ${state.stages.join(', ')}`
        : `${stage}, step ${count(state.stage_step)}; stages: ${state.stages.join(', ')}`,
    ],
    ['tokens', `${count(state.tokens)} trained on`],
    ['skipped', `${count(state.skipped)} steps that were not finite`],
    ...(state.best
      ? [
          [
            'best',
            `${state.best.value.toPrecision(4)} after step ${count(state.best.stage_step)} of the stage`,
          ] as const,
        ]
      : []),
    ['kernels', state.isa],
    whole,
  ];
}

export async function run(path: string): Promise<Row[]> {
  const config = await configOfRun(path);
  const { base, adapter, adapter_mode: mode } = config.model;
  const log = existsSync(join(path, 'metrics.jsonl')) ? readLog(join(path, 'metrics.jsonl')) : [];
  const last = log.at(-1);
  const names = existsSync(join(path, 'checkpoints')) ? await readdir(join(path, 'checkpoints')) : [];
  const steps = names
    .flatMap((name) => /^step-(\d+)$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
  const results = ['adapter', 'model', 'reward', 'eval.json', 'report.html'].filter((name) =>
    existsSync(join(path, name)),
  );
  const ended = log.some(({ phase }) => phase === 'test');
  const lora =
    'lora' in config && config.lora !== 'none' ? `LoRA of rank ${config.lora?.r}` : 'every parameter';
  return [
    ['directory', resolve(path)],
    ['method', `${config.method}, ${lora} of ${typeof base === 'string' ? base : 'a new model'}`],
    ...(adapter === undefined ? [] : [[mode === 'stack' ? 'stacked on' : 'continues', adapter] as const]),
    [
      'progress',
      ended
        ? `finished after step ${count(Number(last?.step))}`
        : await progress(
            last,
            steps.length === 0 ? undefined : join(path, 'checkpoints', `step-${steps.at(-1)}`),
          ),
    ],
    ['checkpoints', steps.length === 0 ? 'none' : `steps ${steps.join(', ')}`],
    ['results', results.length === 0 ? 'none yet' : results.join(', ')],
    ...(ended ? [] : [['resume', typedCommand(`run --resume ${path}`)] as const]),
  ];
}

/**
 * Progress of a run that has not ended: by its newest checkpoint, or by the log, which has only some of the steps but
 * may be further.
 */
async function progress(
  last: Readonly<Record<string, unknown>> | undefined,
  newest: string | undefined,
): Promise<string> {
  const state = newest === undefined ? undefined : await readRunState(newest).catch(() => undefined);
  const logged = Number(last?.step ?? -1);
  if (state && state.step >= logged) {
    const stage = state.stages[state.stage];
    const all = `${count(state.step)} of all stages`;
    if (stage === undefined) return `step ${all}, which are done`;
    return `step ${count(state.stage_step)} in ${stage}${state.stages.length > 1 ? `, ${all}` : ''}`;
  }
  return last ? `step ${count(logged)}, in ${last.phase}` : 'nothing was logged yet';
}

/** Rows on solutions with labels on their steps, or on problems with answers. */
export async function data(path: string): Promise<Row[]> {
  const found = await resolveData(path, 'train', () => 'inspect data');
  const isLayout = (error: unknown) => error instanceof DataError && error.kind === 'format';
  const read = await labelled(found).catch((error: unknown) => {
    if (!isLayout(error)) throw error;
    return { error };
  });
  if ('rows' in read && read.wrong > 0) return read.rows;
  // Solutions without a wrong step may be the gold ones of problems, which can be asked too.
  const loaded = await loadProblems(found).catch((other: unknown) => {
    if ('rows' in read) return undefined;
    throw isLayout(other) ? read.error : other;
  });
  if (loaded === undefined) return 'rows' in read ? read.rows : [];
  const problems = new Set(loaded.problems.map(({ problem }) => normalizeProblem(problem)));
  return [
    ['files', loaded.files.join(', ')],
    ['problems', `${count(loaded.problems.length)}, ${count(problems.size)} different, each with its answer`],
    ...('rows' in read ? read.rows.filter(([name]) => name === 'solutions' || name === 'steps') : []),
    ['reading', `the layout is ${loaded.layouts.join(', ')}`],
  ];
}

async function labelled(path: string): Promise<{ readonly wrong: number; readonly rows: Row[] }> {
  const { records, report } = loadRecords(path, { on_bad_row: 'skip' });
  const counts = { right: 0, wrong: 0, unlabelled: 0, steps: 0 };
  const problems = new Set<string>();
  for await (const { problem, steps } of records) {
    problems.add(normalizeProblem(problem));
    for (const { label } of steps) {
      counts.steps++;
      counts[label === 1 ? 'right' : label === 0 ? 'wrong' : 'unlabelled']++;
    }
  }
  const rows: Row[] = [
    ['files', report.files.join(', ')],
    [
      'solutions',
      `${count(report.records)} of ${count(problems.size)} problems, from ${count(report.rows)} rows`,
    ],
    [
      'steps',
      `${count(counts.steps)}: ${count(counts.right)} right, ${count(counts.wrong)} wrong, ${count(counts.unlabelled)} without a label`,
    ],
    ...formatLoadReport(report).map((line): Row => ['reading', line]),
  ];
  return { wrong: counts.wrong, rows };
}

async function tokenizerRow(directory: string): Promise<Row[]> {
  if (!existsSync(join(directory, 'tokenizer.json')) && !existsSync(join(directory, 'tokenizer.json.gz')))
    return [['tokenizer', 'none here']];
  const { vocabSize, hasChatTemplate } = await loadTokenizer(directory);
  return [
    ['tokenizer', `${count(vocabSize)} tokens, ${hasChatTemplate ? 'with' : 'without'} a chat template`],
  ];
}

function cardRows(card: ModelCard | undefined): Row[] {
  if (!card) return [];
  const {
    kind,
    prompt,
    likelihood,
    threshold,
    warnings = [],
  } = (card.judge ?? {}) as {
    readonly kind?: string;
    readonly likelihood?: { readonly of?: 'calculations'; readonly verdict?: number };
    readonly threshold?: number | string;
    readonly warnings?: readonly string[];
    readonly prompt?: { readonly pos_word?: string; readonly neg_word?: string };
  };
  const evidence = likelihood?.of === 'calculations' ? 'calculations' : "the base's likelihood";
  const words = `the words ${prompt?.pos_word} and ${prompt?.neg_word}`;
  const by = !likelihood
    ? words
    : likelihood.verdict === 0
      ? `${evidence} alone`
      : `${words} and ${evidence}`;
  const judges =
    kind === undefined
      ? 'no steps'
      : kind === 'verdict'
        ? `steps, by ${by}`
        : `steps, as a ${kind.replace('_', ' ')}`;
  return [
    [
      'trained by',
      `method ${card.method}, in ${card.dtype}${card.quantize ? `, on a base in ${card.quantize}` : ''}`,
    ],
    ['judges', judges],
    ...(typeof threshold === 'number' ? [['threshold', threshold.toPrecision(3)] as const] : []),
    ...warnings.map((warning) => ['warning', warning] as const),
  ];
}

function stored(file: Pick<CheckpointReader, 'tensors' | 'format'>): string {
  const { tensors } = file;
  const kept = new Map([...tensors.keys()].map((name) => [name, file.format?.(name)]));
  const bytes = [...tensors].reduce((sum, [name, { begin, end, shape }]) => {
    const own = kept.get(name);
    return sum + (own ? quantizedBytes(own, shape as readonly [number, number]) : end - begin);
  }, 0);
  const dtypes = [...new Set([...tensors].map(([name, { dtype }]) => kept.get(name) ?? dtype))];
  return `${formatBytes(bytes)} in ${count(tensors.size)} tensors of ${dtypes.join(', ')}`;
}

function targets(modules: TargetModules): string {
  if (modules.kind === 'names') return modules.names.join(', ');
  return modules.kind === 'pattern' ? `/${modules.pattern}/` : 'all linear layers';
}
