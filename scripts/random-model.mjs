// Writes a model directory of a known shape with random bf16 weights and the tokenizer of the embedded model, for
// timing and memory where no weights can be downloaded; `steptrain run` takes it as model.base.
//   node scripts/random-model.mjs qwen2.5-0.5b|qwen2.5-1.5b|tiny DIRECTORY
// Weights are made as they are written, a few MiB at a time. An existing model is left as it is.
import { cpSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { modelWeights, parseModelConfig } from '../dist/architectures/table.js';
import { writeCheckpoint } from '../dist/weights/checkpoint-writer.js';

const BASE = fileURLToPath(new URL('../assets/arithmetic-base', import.meta.url));

const qwen2 = (shape) => ({
  architectures: ['Qwen2ForCausalLM'],
  hidden_act: 'silu',
  initializer_range: 0.02,
  max_position_embeddings: 32_768,
  model_type: 'qwen2',
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  sliding_window: null,
  tie_word_embeddings: true,
  use_sliding_window: false,
  // More than the tokenizer has: what the head costs is the point.
  vocab_size: 151_936,
  ...shape,
});

export const SHAPES = {
  'qwen2.5-0.5b': qwen2({
    hidden_size: 896,
    intermediate_size: 4864,
    num_hidden_layers: 24,
    num_attention_heads: 14,
    num_key_value_heads: 2,
  }),
  'qwen2.5-1.5b': qwen2({
    hidden_size: 1536,
    intermediate_size: 8960,
    num_hidden_layers: 28,
    num_attention_heads: 12,
    num_key_value_heads: 2,
  }),
  // Both sides of a comparison at a size that the processor does in seconds.
  tiny: qwen2({
    hidden_size: 64,
    intermediate_size: 160,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    vocab_size: 512,
  }),
};

/** Normal numbers of this deviation as bf16 bits, one for every 16-bit draw. */
function normalTable(deviation) {
  const table = new Uint16Array(1 << 16);
  const float = new Float32Array(1);
  const bits = new Uint32Array(float.buffer);
  for (let i = 0; i < table.length; i += 2) {
    const radius = deviation * Math.sqrt(-2 * Math.log((i + 1) / (table.length + 1)));
    const angle = 2 * Math.PI * ((i * 0.6180339887498949) % 1);
    for (const [j, value] of [Math.cos(angle), Math.sin(angle)].entries()) {
      float[0] = radius * value;
      table[i + j] = (bits[0] + 0x8000) >>> 16;
    }
  }
  return table;
}

function normals(count, table, seed) {
  let state = (seed * 0x9e3779b9 + 0x85ebca6b) >>> 0 || 1;
  const values = new Uint16Array(count);
  for (let i = 0; i < count; i += 2) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    values[i] = table[state & 0xffff];
    values[i + 1] = table[state >>> 16];
  }
  return new Uint8Array(values.buffer);
}

export async function writeRandomModel(shape, directory) {
  const config = SHAPES[shape];
  const table = normalTable(config.initializer_range);
  const ones = (count) => new Uint8Array(new Uint16Array(count).fill(0x3f80).buffer);
  const weights = modelWeights(parseModelConfig(config, shape)).map(({ name, shape, init }, i) => {
    const count = shape.reduce((product, extent) => product * extent, 1);
    const one = init.kind === 'one';
    return { name, shape, dtype: 'BF16', data: () => (one ? ones(count) : normals(count, table, i + 1)) };
  });
  for (const file of ['tokenizer.json', 'tokenizer_config.json'])
    cpSync(join(BASE, file), join(directory, file), { recursive: true });
  await writeCheckpoint(directory, weights, { config });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [shape, directory] = process.argv.slice(2);
  if (!SHAPES[shape] || !directory) {
    console.error(`random-model: expected one of ${Object.keys(SHAPES).join(', ')} and a directory`);
    process.exit(2);
  }
  if (!existsSync(join(directory, 'config.json'))) await writeRandomModel(shape, directory);
}
