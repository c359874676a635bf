// The word-problem model of the package: it is there, fits, and solves a problem as a pupil would.
import { existsSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { loadModel } from '../../src/api/model.js';
import { openDevice } from '../../src/runtime/device.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';

const folder = fileURLToPath(new URL('../../assets/word-problems/', import.meta.url));
const weights = `${folder}model.safetensors`;

describe.skipIf(!existsSync(weights))(
  'the word-problem model (skipped where assets/word-problems has no weights)',
  () => {
    it('takes less than 4 MB', () => {
      expect(statSync(weights).size).toBeLessThan(4_000_000);
    });

    it('solves a problem line by line and ends', async () => {
      const device = openDevice('cpu');
      const model = await loadModel(device, 'word-problems');
      const tokenizer = await loadTokenizer(folder);
      const problem = 'Tom has 12 apples. Tom finds 7 more. How many apples does Tom have now?';
      const samples = await model.generate([tokenizer.encode(problem)], {
        tokenizer,
        temperature: 0,
        eosTokenIds: [tokenizer.eosId!],
        maxNewTokens: 60,
      });
      const sample = samples[0]![0]!;
      expect([sample.text, sample.finishReason]).toEqual(['\nTom: 12 + 7 = 19\nAnswer: 19\n', 'stop']);
      device.dispose();
    });
  },
);
