// Chat templates beside transformers: those that pip's packages carry, with conversations of every kind, and expressions one by one.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { exactText, parseExact } from '../../dist/files/exact-json.js';
import { ChatRenderer } from '../../dist/tokenizer/chat-template.js';
import { run } from './environment.mjs';
import { CONVERSATIONS } from './template-conversations.mjs';

/** Templates of one thought each with the texts that transformers wrote; the ordinary tests hold them. */
const RECORDED = new URL('../../test/golden/jinja/expressions.json', import.meta.url);
const SPECIAL_TOKENS = { bos_token: '<s>', eos_token: '</s>' };

/** Templates that the packages of the environment bring, by the names of their files. */
function templatesIn(folder) {
  const found = {};
  for (const name of readdirSync(folder, { recursive: true })) {
    if (/chat_template.*\.jinja$/.test(name))
      found[basename(name)] = readFileSync(join(folder, name), 'utf8');
  }
  return found;
}

function rendered(template, { messages, tools, variables, ...rest }) {
  try {
    const renderer = new ChatRenderer(new Map([['default', template]]), SPECIAL_TOKENS);
    const text = renderer.render(messages, {
      tools,
      variables,
      addGenerationPrompt: rest.add_generation_prompt,
      continueFinalMessage: rest.continue_final_message,
      // Conversations that the product refuses are compared too.
      mayLeaveOut: true,
    });
    return { text };
  } catch (error) {
    return { error: error.message };
  }
}

/** One check for each template, and one for the expressions. */
export async function templates(python, folder) {
  const site = await run(python, ['-c', 'import sysconfig; print(sysconfig.get_paths()["purelib"])']);
  const files = templatesIn(site.trim());
  const cases = [];
  const texts = { ...files };
  for (const template of Object.keys(files))
    for (const conversation of CONVERSATIONS) cases.push({ template, ...conversation });
  const { first, messages, rendered: recorded } = JSON.parse(readFileSync(RECORDED, 'utf8'));
  const begun = cases.length;
  for (const [expression] of recorded) {
    texts[expression] = expression.startsWith('[{{') ? first + expression : expression;
    cases.push({ template: expression, messages, name: 'expression' });
  }
  mkdirSync(folder, { recursive: true });
  const [asked, answered] = ['asked.json', 'answered.json'].map((name) => join(folder, name));
  writeFileSync(asked, exactText({ templates: texts, cases }));
  await run(python, [fileURLToPath(new URL('templates.py', import.meta.url)), asked, answered]);
  const answers = JSON.parse(readFileSync(answered, 'utf8'));
  const exact = parseExact(readFileSync(asked, 'utf8')).cases;
  const counts = new Map();
  for (const [i, right] of answers.entries()) {
    const { template, name } = cases[i];
    const own = rendered(texts[template], exact[i]);
    const group = name === 'expression' ? 'expressions' : template;
    const count = counts.get(group) ?? { equal: 0, refused: [], wrong: [] };
    counts.set(group, count);
    if (i >= begun && recorded[i - begun][1] !== (right.text ?? null))
      count.wrong.push(`${template}: the recorded text is another than ${JSON.stringify(right)}`);
    if (own.text === right.text) count.equal++;
    else if (own.text === undefined)
      count.refused.push(`${name === 'expression' ? template : name}: ${own.error}`);
    else count.wrong.push(`${name === 'expression' ? template : name}: ${difference(own.text, right)}`);
  }
  return [...counts].map(([name, { equal, refused, wrong }]) => ({
    name,
    ok: wrong.length === 0,
    detail: [`${equal} equal`, ...wrong, ...refused.map((each) => `refused here alone: ${each}`)].join(
      '\n    ',
    ),
  }));
}

function difference(own, { text, error }) {
  if (text === undefined) return `${JSON.stringify(own.slice(-80))}, where transformers says ${error}`;
  let at = 0;
  while (own[at] === text[at]) at++;
  const around = (whole) => JSON.stringify(whole.slice(Math.max(0, at - 30), at + 50));
  return `${around(own)} for ${around(text)}`;
}
