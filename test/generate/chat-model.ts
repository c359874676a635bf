import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { byteTokenizer } from '../../src/tokenizer/byte.js';
import { goldenDirectory } from '../models/golden.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** The token that ends a turn. */
export const END_OF_TURN = 260;

export const TEMPLATE =
  "{% for message in messages %}{{ '<|turn|>' + message.role + '\\n' + message.content + '<|end|>\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|turn|>assistant\\n' }}{% endif %}";

/** A directory with random weights, a token for each byte, a chat template, and an end of text. It is removed after the running test. */
export async function chatModel(template = TEMPLATE, eos = '<|end|>'): Promise<string> {
  const directory = join(temporaryDirectory(), 'chat');
  cpSync(goldenDirectory('llama3'), directory, { recursive: true });
  await byteTokenizer().save(directory);
  const path = join(directory, 'tokenizer.json');
  const tokenizer = JSON.parse(readFileSync(path, 'utf8')) as { added_tokens: object[] };
  const [special] = tokenizer.added_tokens;
  for (const [id, content] of [
    [259, '<|turn|>'],
    [END_OF_TURN, '<|end|>'],
  ])
    tokenizer.added_tokens.push({ ...special, id, content });
  writeFileSync(path, JSON.stringify(tokenizer));
  const config = join(directory, 'tokenizer_config.json');
  const settings = JSON.parse(readFileSync(config, 'utf8')) as object;
  writeFileSync(config, JSON.stringify({ ...settings, eos_token: eos }));
  writeFileSync(join(directory, 'chat_template.jinja'), template);
  return directory;
}
