import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { cuttingOf, ignoresMerges } from '../../src/tokenizer/gguf-cutting.js';
import { byteCharacters } from '../../src/tokenizer/token-bytes.js';

/** A tokenizer of bytes with a few merges, for the golden models of 320 ids. */
export function writeTokenizer(directory: string, pre: string): void {
  const characters = byteCharacters();
  const merges = ['Ġ a', 'e r', 'Ġ A'];
  const tokens = [...characters, ...merges.map((merge) => merge.replace(' ', ''))];
  const special = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  writeFileSync(
    join(directory, 'tokenizer.json'),
    JSON.stringify({
      added_tokens: [{ id: 300, content: '<|end|>', ...special }],
      normalizer: null,
      pre_tokenizer: cuttingOf(pre),
      post_processor: null,
      decoder: { type: 'ByteLevel' },
      model: {
        type: 'BPE',
        vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
        merges,
        ignore_merges: ignoresMerges(pre),
      },
    }),
  );
  const chat = "{% for m in messages %}{{ m['content'] }}{% endfor %}";
  writeFileSync(
    join(directory, 'tokenizer_config.json'),
    JSON.stringify({ eos_token: '<|end|>', chat_template: chat }),
  );
}
