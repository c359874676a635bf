// A conversation: a line is a turn, a line that begins with / a command.
import { Conversation } from '../generate/conversation.js';
import { Generator } from '../generate/generator.js';
import type { SamplingOptions } from '../generate/options.js';
import type { ChosenModel } from './chosen/chosen-model.js';
import { UsageError } from './line/error.js';

export interface ChatOptions extends SamplingOptions {
  readonly system?: string | undefined;
  readonly lines: AsyncIterable<string>;
  readonly write: (text: string) => void;
  /** Asks for the next line. */
  readonly ready?: () => void;
  /** `listener` ends the current reply; it returns false if there is none. */
  readonly onInterrupt?: (listener: () => boolean) => void;
}

const HELP = '/reset begins anew, /exit ends\n';

/** Runs until the lines end or /exit. @throws UsageError for a model without a chat template */
export async function chat(
  { model, tokenizer, eosTokenIds }: Pick<ChosenModel, 'model' | 'tokenizer' | 'eosTokenIds'>,
  { system, lines, write, ready = () => {}, onInterrupt = () => {}, ...sampling }: ChatOptions,
): Promise<void> {
  if (!tokenizer.hasChatTemplate) {
    throw new UsageError(
      "the model's tokenizer has no chat template, so it was not made for conversations; use steptrain generate, or add chat_template.jinja to the model directory",
    );
  }
  const conversation = new Conversation(tokenizer, system);
  if (conversation.forgets)
    write('The chat template of this model shows one message alone: each line is asked by itself.\n');
  const generator = new Generator(model.decoder, { maxRows: 1 });
  let reply: AbortController | undefined;
  onInterrupt(() => {
    reply?.abort();
    return reply !== undefined;
  });
  try {
    ready();
    for await (const line of lines) {
      const said = line.trim();
      if (said === '/exit') return;
      if (said === '/reset') conversation.reset();
      else if (said.startsWith('/')) write(HELP);
      else if (said !== '') {
        await answer(conversation.ask(said));
      }
      ready();
    }
  } finally {
    generator.dispose();
  }

  async function answer(ids: readonly number[]): Promise<void> {
    const { maxPositions } = model.decoder.config;
    if (ids.length >= maxPositions) {
      write(
        `the conversation has grown to ${ids.length} tokens, and the model reads at most ${maxPositions}; /reset begins anew\n`,
      );
      return;
    }
    reply = new AbortController();
    const role = { adapter: model.adapter };
    const options = { ...sampling, tokenizer, eosTokenIds, role, signal: reply.signal };
    write(conversation.opened);
    const generation = generator.generate([ids], options);
    for await (const { text } of generation) write(text ?? '');
    reply = undefined;
    const sample = (await generation.samples)[0]?.[0];
    conversation.answer(sample?.tokens ?? [], sample?.text ?? '');
    write('\n');
  }
}
