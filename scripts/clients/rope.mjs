// Models with rotary embeddings in every spelling, of transformers 5: the same log-probabilities here, and of what is written here in
// transformers 5 and 4.
import { mkdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadModel, openDevice } from '../../dist/entries/index.js';
import { saveDecoder } from '../../dist/entries/ops.js';
import { run } from './environment.mjs';

/** Log-probabilities of float32 differ by rounding alone. */
const ROUNDING = 2e-3;
const SCRIPT = fileURLToPath(new URL('rope_models.py', import.meta.url));

const farthest = (a, b) =>
  a.length === b.length ? Math.max(...a.map((value, i) => Math.abs(value - b[i]))) : Number.NaN;

/** A check for each model. */
export async function rope({ python, python4, folder }) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const { version, ids, cases } = JSON.parse(await run(python, [SCRIPT, 'make', folder]));
  const device = openDevice('cpu');
  const own = new Map();
  for (const { directory } of cases) {
    const model = await loadModel(device, directory, { dtype: 'f32' });
    const [{ logprobs }] = await model.score([ids]);
    own.set(directory, [...logprobs]);
    await saveDecoder(model.decoder, join(directory, 'ours'), { dtype: 'f32' });
    model.dispose();
  }
  device.dispose();
  const read = async ([program, env]) => JSON.parse(await run(program, [SCRIPT, 'read', folder], { env }));
  const others = [await read([python, {}]), await read(python4)];
  console.log(
    `rope: ${cases.length} models of transformers ${version}, read by ${others.map((each) => each.version).join(' and ')}`,
  );
  return cases.map(({ title, directory, logprobs }) => {
    const differences = [
      ['here', farthest(own.get(directory), logprobs)],
      ...others.map((other) => [
        other.version,
        farthest(other.logprobs[basename(directory)] ?? [], logprobs),
      ]),
    ];
    const detail = differences.map(([name, apart]) => `${name} ${apart.toExponential(1)}`).join(', ');
    return { name: title, ok: differences.every(([, apart]) => apart < ROUNDING), detail };
  });
}
