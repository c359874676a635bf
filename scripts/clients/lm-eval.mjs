// lm-eval against a server: likelihoods of choices and of whole texts, and generated answers, beside those of the model in this process.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './environment.mjs';

/** Different summation of equal numbers: lm-eval adds those of a choice in double precision, as here. */
const NEAR = 1e-4;

/** Writes tasks of a few rows into `folder`. */
function writeTasks(folder, problems) {
  const task = (name, rows, lines) => {
    const file = join(folder, `${name}.jsonl`);
    writeFileSync(file, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    const common = [
      `task: ${name}`,
      'dataset_path: json',
      'dataset_kwargs:',
      '  data_files:',
      `    test: ${file}`,
    ];
    writeFileSync(join(folder, `${name}.yaml`), `${[...common, 'test_split: test', ...lines].join('\n')}\n`);
  };
  const answerOf = (answer) => Number(answer.split('####').at(-1).replaceAll(',', ''));
  const choices = problems.map(({ question, answer }) => {
    const right = answerOf(answer);
    return { question, choices: [right + 1, right, 2 * right, right - 3].map(String), label: 1 };
  });
  task('steptrain_choice', choices, [
    'output_type: multiple_choice',
    'doc_to_text: "Question: {{question}}\\nAnswer:"',
    'doc_to_choice: "{{choices}}"',
    'doc_to_target: "{{label}}"',
    'metric_list:',
    '  - metric: acc',
    '  - metric: acc_norm',
  ]);
  task('steptrain_rolling', problems.slice(0, 2), [
    'output_type: loglikelihood_rolling',
    'doc_to_text: ""',
    'doc_to_target: "{{question}}"',
    'metric_list:',
    '  - metric: word_perplexity',
  ]);
  task('steptrain_solve', problems, [
    'output_type: generate_until',
    'doc_to_text: "Question: {{question}}\\nAnswer:"',
    'doc_to_target: "{{answer}}"',
    'generation_kwargs:',
    '  until: ["\\n\\n", "Question:"]',
    '  max_gen_toks: 24',
    '  do_sample: false',
    '  temperature: 0.0',
    'metric_list:',
    '  - metric: exact_match',
  ]);
}

/** Rows of each task as lm-eval logs them. */
async function evaluate({ python, kind, url, model, tokenizer, asText, folder, tasks }) {
  const output = join(folder, `out-${kind}`);
  rmSync(output, { recursive: true, force: true });
  const isChat = kind === 'local-chat-completions';
  const path = isChat ? '/v1/chat/completions' : '/v1/completions';
  const settings = { model, base_url: url + path, num_concurrent: 2, max_length: 1024, max_retries: 1 };
  const own = isChat
    ? {}
    : { tokenizer, tokenizer_backend: 'huggingface', tokenized_requests: asText ? 'False' : 'True' };
  const args = Object.entries({ ...settings, ...own }).map(([key, value]) => `${key}=${value}`);
  await run(
    python,
    [
      ...['-m', 'lm_eval', '--model', kind, '--model_args', args.join(','), '--tasks', tasks.join(',')],
      ...['--include_path', folder, '--output_path', output, '--log_samples'],
      ...(isChat ? ['--apply_chat_template'] : []),
    ],
    { env: { HF_HUB_OFFLINE: '1', HF_DATASETS_OFFLINE: '1', OPENAI_API_KEY: 'none' } },
  );
  const files = readdirSync(output, { recursive: true }).filter((file) => /samples_.*\.jsonl$/.test(file));
  const rows = (task) => {
    const file = files.find((each) => each.includes(`samples_${task}_`));
    if (file === undefined) throw new Error(`lm-eval wrote no samples of ${task}`);
    return readFileSync(join(output, file), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
  };
  return Object.fromEntries(tasks.map((task) => [task, rows(task)]));
}

/** Log-likelihood of `ids` from place `from` on, and whether greedy decoding would write them. */
async function likelihood(model, ids, from) {
  const [{ logprobs }] = await model.score([ids]);
  const [[sample]] = await model.generate([ids], { maxNewTokens: 1, promptTopLogprobs: 1 });
  let sum = 0;
  for (const logprob of logprobs.slice(from - 1)) sum += logprob;
  const greedy = sample.promptTopLogprobs.slice(from - 1).every(([best], i) => best.token === ids[from + i]);
  return [sum, greedy];
}

/** @returns checks: what lm-eval found by asking the server, beside what the model gives here */
export async function lmEval({ python, url, name, directory, problems, local, isChat, folder }) {
  mkdirSync(folder, { recursive: true });
  writeTasks(folder, problems);
  const { model, tokenizer } = local;
  // Such a tokenizer is this package's own: lm-eval then sends texts, and cannot tell which tokens are a choice's.
  const asText = tokenizer.reversesDigits === true;
  const asked = { python, url, model: name, tokenizer: directory, asText, folder };
  const tasks = [...(asText ? [] : ['steptrain_choice']), 'steptrain_rolling', 'steptrain_solve'];
  const checks = [];
  const found = await evaluate({ ...asked, kind: 'local-completions', tasks });
  const same = (name, got, right) => {
    const ok = got.length === right.length && got.every((value, i) => isNear(value, right[i]));
    checks.push({
      name,
      ok,
      detail: ok ? `${got.length} alike` : `${JSON.stringify(got)} | ${JSON.stringify(right)}`,
    });
  };

  const scored = (found.steptrain_choice ?? []).flatMap(({ arguments: args, resps }) =>
    argumentsOf(args).map(([context, target], i) => ({ context, target, found: resps[i][0] })),
  );
  // lm-eval adds no special tokens of its own.
  const plain = (text) => tokenizer.encode(text, { addSpecialTokens: false });
  const likelihoods = [];
  for (const { context, target } of scored) {
    const [ids, before] = [plain(context + target), plain(context)];
    likelihoods.push(await likelihood(model, ids, before.length));
  }
  same(
    'log-likelihoods of choices',
    scored.map((each) => numbers(each.found)),
    likelihoods,
  );

  const rolling = [];
  for (const { arguments: args } of found.steptrain_rolling) {
    const ids = [tokenizer.bosId ?? tokenizer.eosId, ...plain(argumentsOf(args)[0][0])];
    rolling.push((await likelihood(model, ids, 1))[0]);
  }
  same(
    'log-likelihoods of texts',
    found.steptrain_rolling.map(({ resps }) => numbers(resps[0])[0]),
    rolling,
  );

  const greedy = { temperature: 0, maxNewTokens: 24, tokenizer, stop: ['\n\n', 'Question:'] };
  const written = async (prompts) => (await model.generate(prompts, greedy)).map(([sample]) => sample.text);
  const texts = found.steptrain_solve.map(({ arguments: args }) => argumentsOf(args)[0][0]);
  same(
    'generated answers',
    found.steptrain_solve.map(({ resps }) => resps[0][0]),
    await written(texts.map(plain)),
  );
  if (!isChat) return checks;
  const chat = await evaluate({ ...asked, kind: 'local-chat-completions', tasks: ['steptrain_solve'] });
  const prompts = texts.map((content) =>
    tokenizer.encode(
      tokenizer.applyChatTemplate([{ role: 'user', content }], { addGenerationPrompt: true }),
      {
        addSpecialTokens: false,
      },
    ),
  );
  same(
    'generated replies',
    chat.steptrain_solve.map(({ resps }) => resps[0][0]),
    await written(prompts),
  );
  return checks;
}

/** Logged as a list of lists, or as an object of objects with numbered keys. */
function argumentsOf(logged) {
  const list = Array.isArray(logged) ? logged : Object.values(logged);
  return list.map((each) => (Array.isArray(each) ? each : Object.values(each)));
}

/** Logged as numbers and truth values, or as Python writes them. */
const numbers = (found) =>
  [found]
    .flat()
    .map((value) =>
      value === 'True' ? true : value === 'False' ? false : typeof value === 'string' ? Number(value) : value,
    );

function isNear(one, other) {
  if (Array.isArray(one))
    return one.length === other.length && one.every((each, i) => isNear(each, other[i]));
  return typeof one === 'number'
    ? Math.abs(one - other) < NEAR * Math.max(1, Math.abs(other))
    : one === other;
}
