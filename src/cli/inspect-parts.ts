// Rows of `steptrain inspect`.
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { countParameters, readModelConfig } from '../architectures/table.js';
import { type ModelCard, readCard } from '../models/card.js';
import { openDecoderWeights } from '../models/load.js';
import { namedModel } from '../models/saved.js';
import { resolveSaved } from '../run/resolve-saved.js';
import { formatBytes } from '../terminal/progress.js';
import { loadTokenizer } from '../tokenizer/load.js';
import { openAdapterWeights, readAdapterConfig } from '../weights/adapter.js';
import type { TargetModules } from '../weights/adapter-config.js';
import type { CheckpointReader } from '../weights/checkpoint.js';
import { quantizedBytes } from '../weights/quantized/format.js';

type Row = readonly [name: string, value: string];

const count = (value: number) => value.toLocaleString('en');

/** Facts about the adapter that `name` means, or about the model where it means none. */
export async function inspected(name: string): Promise<Row[]> {
  const { adapter: path } = namedModel(name);
  return path === undefined ? modelRows(name) : adapterRows(path);
}

async function modelRows(name: string): Promise<Row[]> {
  const { directory } = await resolveSaved(name, { locate: () => 'inspect' });
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

async function adapterRows(path: string): Promise<Row[]> {
  const { r, loraAlpha, useRslora, targetModules, modulesToSave, taskType, baseModel } =
    readAdapterConfig(path);
  const file = openAdapterWeights(path);
  file.close();
  const pairs = [...file.tensors.keys()].filter((name) => name.includes('lora_A')).length;
  const card = readCard(path);
  return [
    ['directory', resolve(path)],
    ['rank', `${r}, scaled by ${(useRslora ? loraAlpha / Math.sqrt(r) : loraAlpha / r).toPrecision(3)}`],
    ['modules', `${pairs} (${targets(targetModules)})`],
    ...(modulesToSave.length > 0 ? [['kept whole', modulesToSave.join(', ')] as const] : []),
    ['stored', stored(file)],
    ['task', taskType ?? 'not said'],
    ['base', card?.base ?? baseModel ?? 'not said'],
    ...(await tokenizerRow(path)),
    ...cardRows(card),
  ];
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
