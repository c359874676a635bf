// Tokenizers of every kind, trained with Hugging Face's Rust library: the same ids and the same texts, or refused.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { loadTokenizer } from '../../dist/tokenizer/load.js';
import { run } from './environment.mjs';

/** A check for each tokenizer. */
export async function tokenizers(python, folder) {
  mkdirSync(folder, { recursive: true });
  const path = join(folder, 'trained.json');
  await run(python, [fileURLToPath(new URL('train_tokenizers.py', import.meta.url)), path]);
  const checks = [];
  for (const [i, { name, tokenizer, texts, decoded }] of JSON.parse(readFileSync(path, 'utf8')).entries()) {
    const directory = join(folder, String(i));
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory);
    writeFileSync(join(directory, 'tokenizer.json'), JSON.stringify(tokenizer));
    let own;
    try {
      own = await loadTokenizer(directory);
    } catch (error) {
      checks.push({ name, ok: true, detail: `refused here: ${error.message}` });
      continue;
    }
    const wrong = [];
    const check = (what, found, right) => {
      const [a, b] = [found, right].map((each) => JSON.stringify(each));
      if (a !== b) wrong.push(`${what}: ${a} for ${b}`);
    };
    for (const [text, ids, back] of texts) {
      check(`ids of ${JSON.stringify(text)}`, own.encode(text, { addSpecialTokens: false }), ids);
      check(`text of ${JSON.stringify(ids)}`, own.decode(ids), back);
    }
    for (const [ids, text] of decoded) check(`text of ${JSON.stringify(ids)}`, own.decode(ids), text);
    const detail =
      wrong.length === 0
        ? `${texts.length} texts, ${decoded.length} lists of ids`
        : wrong.slice(0, 4).join('\n    ');
    checks.push({ name, ok: wrong.length === 0, detail });
  }
  return checks;
}
