// Arguments of calls, as OpenAI's data has them (JSON in a text) and as templates take them.
import { describe, expect, it } from 'vitest';
import { exactText, parseExact } from '../../src/files/exact-json.js';
import { loadTokenizer } from '../../src/tokenizer/load.js';
import type { ChatMessage } from '../../src/tokenizer/tokenizer.js';
import { chatModel, TEMPLATE } from '../generate/chat-model.js';

const CALLS =
  '{% for call in message.tool_calls or [] %}{% set given = call.function.arguments %}GIVEN{% endfor %}';

/** A template with the expression at each call. */
const writing = (expression: string) =>
  TEMPLATE.replace("'<|end|>", "'}}X{{ '<|end|>")
    .replace('X', CALLS.replace('GIVEN', `{{ ${expression} }}`))
    .replace(" + '}}", ' }}');

/** Qwen2.5's, DeepSeek-R1's, Qwen3's and Qwen3.5's way. */
const AS_JSON = writing('given | tojson');
const AS_TEXT = writing("'' + given");
const EITHER = writing('given if given is string else (given | tojson)');
const BY_NAME = writing('given.items() | list | length');

const said = async (template: string, given: unknown) => {
  const calls = [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: given } }];
  const messages: ChatMessage[] = [
    { role: 'user', content: 'Weather?' },
    { role: 'assistant', content: '', tool_calls: calls },
  ];
  const tokenizer = await loadTokenizer(await chatModel(template));
  const text = tokenizer.applyChatTemplate(messages);
  return /assistant\n(.*?)<\|end\|>/s.exec(text)?.[1];
};

describe('arguments', () => {
  const text = '{"city":"Åre", "days": 12345678901234567890, "scale": 2.0}';
  const spaced = '{"city": "Åre", "days": 12345678901234567890, "scale": 2.0}';
  const given = parseExact(text);

  it('in a text are not written as JSON twice', async () => {
    expect(await said(AS_JSON, text)).toBe(spaced);
    expect(await said(AS_JSON, '{}')).toBe('{}');
    expect(await said(AS_JSON, given)).toBe(spaced);
  });

  it('in a text stay as they are where the template writes them so', async () => {
    expect(await said(EITHER, text)).toBe(text);
    expect(await said(AS_TEXT, text)).toBe(text);
  });

  it('become what the template can take', async () => {
    expect(await said(AS_TEXT, given)).toBe(spaced);
    expect(await said(EITHER, given)).toBe(spaced);
    expect(await said(BY_NAME, text)).toBe('3');
  });

  it('that are no object stay, and an error is that of the conversation as it is', async () => {
    expect(await said(AS_JSON, 'now')).toBe('"now"');
    expect(await said(AS_JSON, '{"a": ')).toBe(exactText('{"a": '));
    await expect(said(writing('raise_exception("no calls")'), text)).rejects.toThrow(/no calls/);
  });
});
