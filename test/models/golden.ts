import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { readStoredF32 } from '../../src/weights/checkpoint.js';
import { openSafetensors } from '../../src/weights/safetensors.js';

/** What transformers, PEFT and torch computed for one golden model; see test/golden/README.md. */
export interface Expected {
  readonly sequences: readonly (readonly number[])[];
  readonly prompt_lengths: readonly number[];
  readonly sft_loss_completion_mean: number;
  readonly completion_tokens: number;
  readonly naive_bf16: {
    readonly logprob_max_abs_error: number;
    readonly grad_relative_error: Readonly<Record<string, number>>;
  };
  readonly [key: string]: unknown;
}

/** The folders of decoders in test/golden, with values of transformers, PEFT and torch: the tests of models iterate over them. */
export const DECODERS = ['qwen2', 'qwen3', 'llama3', 'mistral', 'opt'];

const foldersIn = (directory: string) =>
  readdirSync(goldenDirectory(directory)).filter((name) =>
    existsSync(goldenDirectory(`${directory}/${name}/config.json`)),
  );

/** The folders of test/golden/variants: settings that the decoders leave out, each with logits and gradients of transformers. */
export const VARIANTS = foldersIn('variants');

/** Every golden model by its folder. A new architecture is tested by a folder here: the lists of tests are made of these. */
export const MODELS = [...foldersIn('.'), ...VARIANTS.map((name) => `variants/${name}`)];

/** The first golden model of each `model_type`. */
export const BY_TYPE: ReadonlyMap<string, string> = new Map(
  MODELS.toReversed().map((name) => [
    JSON.parse(readFileSync(goldenDirectory(`${name}/config.json`), 'utf8')).model_type as string,
    name,
  ]),
);

export function goldenDirectory(name: string): string {
  return fileURLToPath(new URL(`../golden/${name}`, import.meta.url));
}

export function expectedOf(name: string): Expected {
  return JSON.parse(readFileSync(`${goldenDirectory(name)}/expected.json`, 'utf8')) as Expected;
}

/** Every tensor of expected.safetensors, as f32. */
export function expectedTensors(name: string): ReadonlyMap<string, Float32Array> {
  return tensorsIn(`${goldenDirectory(name)}/expected.safetensors`);
}

/** Every tensor of a file, as f32. */
export function tensorsIn(path: string): ReadonlyMap<string, Float32Array> {
  const file = openSafetensors(path);
  try {
    return new Map([...file.tensors.keys()].map((tensor) => [tensor, readStoredF32(file, tensor)]));
  } finally {
    file.close();
  }
}
