// OpenAI's package for Node against a server: node openai-node.mjs BASE_URL MODEL. Prints a line of JSON for each check.
import OpenAI from 'openai';

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const messages = [{ role: 'user', content: 'What is 3 + 4?' }];
const few = { model, max_tokens: 8, temperature: 0 };

async function check(name, body) {
  try {
    const detail = await body();
    console.log(JSON.stringify({ name, ok: true, detail: detail ?? '' }));
  } catch (error) {
    console.log(JSON.stringify({ name, ok: false, detail: String(error).slice(0, 600) }));
  }
}

function holds(condition, what) {
  if (!condition) throw new Error(what);
}

async function refused(promise, status) {
  const error = await promise.then(
    () => undefined,
    (reason) => reason,
  );
  holds(error?.status === status, `expected ${status}, found ${error?.status ?? 'an answer'}`);
  return error.message;
}

/** The reply's text, or the sentence that refuses a conversation of which the model's template would show a part alone. */
async function conversed(sent, more = {}) {
  try {
    const { choices } = await client.chat.completions.create({ ...few, messages: sent, ...more });
    return choices[0].message.content;
  } catch (error) {
    holds(error.status === 400 && error.message.includes('leaves one out of these'), error.message);
    return error.message;
  }
}

await check('models.list and models.retrieve', async () => {
  const { data } = await client.models.list();
  const one = await client.models.retrieve(data[0].id);
  holds(one.id === model && data[0].id === model, `found ${one.id}`);
  await refused(client.models.retrieve('no/such-model'), 404);
});
await check('completions', async () => {
  const { choices, usage } = await client.completions.create({
    ...few,
    prompt: 'One, two,',
    logprobs: 2,
    echo: true,
  });
  holds(choices[0].text.startsWith('One, two,') && choices[0].logprobs.top_logprobs.length > 8, 'echo');
  holds(usage.completion_tokens === 8, `usage ${JSON.stringify(usage)}`);
});
await check('chat, and the reply sent back', async () => {
  const first = await client.chat.completions.create({ ...few, messages, logprobs: true, top_logprobs: 2 });
  const reply = first.choices[0].message;
  holds(first.choices[0].logprobs.content[0].top_logprobs.length === 2, 'top_logprobs');
  const old = {
    ...reply,
    annotations: [],
    function_call: null,
    tool_calls: [],
    reasoning_content: null,
    audio: null,
  };
  await conversed([...messages, reply, { role: 'user', content: 'And 5?' }]);
  return conversed([...messages, old, { role: 'user', content: 'And 5?' }]);
});
await check('a stream gives the same text', async () => {
  const whole = await client.chat.completions.create({ ...few, messages });
  let text = '';
  let usage;
  const stream = await client.chat.completions.create({
    ...{ ...few, messages, stream: true },
    stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    usage = chunk.usage ?? usage;
  }
  holds(text === whole.choices[0].message.content, `${text} | ${whole.choices[0].message.content}`);
  holds(usage?.completion_tokens === whole.usage.completion_tokens, 'usage');
});
await check('the helper of streams', async () => {
  const final = await client.chat.completions.stream({ ...few, messages }).finalChatCompletion();
  holds(final.choices[0].message.role === 'assistant', 'role');
});
await check('fields that ask for nothing', async () => {
  const nothing = {
    tools: [],
    modalities: ['text'],
    stop: '',
    seed: -7,
    n: 1,
    user: 'u',
    metadata: {},
    store: false,
  };
  await client.chat.completions.create({ ...few, messages, ...nothing });
});
await check('penalties and a developer', async () => {
  const developer = [{ role: 'developer', content: 'Be brief.' }, ...messages];
  const penalties = { presence_penalty: 0.5, frequency_penalty: 0.5, repetition_penalty: 1.1 };
  return conversed(developer, penalties);
});
await check('a reply that is begun', async () => {
  const begun = [...messages, { role: 'assistant', content: 'Step 1: 3 + 4 =' }];
  const prefill = { add_generation_prompt: false, continue_final_message: true };
  return conversed(begun, prefill);
});
await check('refusals are sentences', async () => {
  const format = { type: 'json_schema', json_schema: { name: 'a', schema: {} } };
  const said = [
    await refused(client.chat.completions.create({ ...few, messages, response_format: format }), 400),
  ];
  const tools = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
  said.push(
    await refused(client.chat.completions.create({ ...few, messages, tools, tool_choice: 'required' }), 400),
  );
  said.push(await refused(client.chat.completions.create({ ...few, model: 'gpt-9', messages }), 404));
  return said.join(' | ');
});
