/** Whether the calls of tools that a model learned from its chat template are read from its turns. */
import { attempt } from '../native/attempt.js';
import type { ChatMessage, Tokenizer } from '../tokenizer/tokenizer.js';
import { readTurn } from './calls.js';

/**
 * The sentence on a chat template that writes calls in a form that `readTurn` does not read, so that they count as text; undefined
 * where it reads them, or where the template does not tell.
 *
 * @param ends the tokens that end a turn
 * @param so what follows from it
 */
export function unreadCallsSentence(
  tokenizer: Tokenizer,
  tools: readonly unknown[],
  ends: readonly number[],
  so = 'turns that call so count as answers',
): string | undefined {
  const [tool] = tools as readonly ({ function?: { name?: string } } & { name?: string })[];
  const name = tool?.function?.name ?? tool?.name;
  if (name === undefined) return undefined;
  const asked = [{ role: 'user', content: 'A' }];
  // DeepSeek's template takes arguments as a text alone.
  const written = [{}, '{}'].map((given) => writtenCall(tokenizer, asked, tools, name, given)).find(Boolean);
  if (written === undefined || !written.includes(name)) return undefined;
  const ids = tokenizer.encode(written, { continuation: true });
  const end = ids.findIndex((id) => ends.includes(id));
  const text = tokenizer.decode(end < 0 ? ids : ids.slice(0, end));
  // A mark that ends the turn may be none of the tokenizer's.
  const said = (text.split('</think>').at(-1) as string).replace(/<\|[^|<>]*\|>\s*$/, '');
  if (readTurn(said, tools).calls.some((call) => call.name === name)) return undefined;
  return (
    `the chat template writes a call as ${JSON.stringify(said.trim().slice(0, 120))}, which is not read as one: ${so}; ` +
    'docs/how-to/turns.md has the forms that are read'
  );
}

/** The turn of a call as the template writes it after its opening; undefined where it writes none, or not after that. */
function writtenCall(
  tokenizer: Tokenizer,
  asked: readonly ChatMessage[],
  tools: readonly unknown[],
  name: string,
  given: unknown,
): string | undefined {
  return attempt(() => {
    const call = { id: 'call00000', type: 'function', function: { name, arguments: given } };
    const calling = { role: 'assistant', content: '', tool_calls: [call] };
    const whole = tokenizer.applyChatTemplate([...asked, calling], { tools, mayLeaveOut: true });
    // Some open reasoning that a call without any does not begin with.
    const openings = [true, false].map((addGenerationPrompt) =>
      tokenizer.applyChatTemplate(asked, { tools, addGenerationPrompt }),
    );
    const opening = openings.find((text) => whole.startsWith(text));
    return opening === undefined ? undefined : whole.slice(opening.length);
  });
}
