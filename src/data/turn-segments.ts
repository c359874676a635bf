/** Conversations as judges of turns read them: by the chat template of the model, with its tools. */
import { badTemplate, DataError } from '../files/data-error.js';
import type { StepRecord } from '../records/record.js';
import { messagesOfTurns, type Turns } from '../records/turns.js';
import { afterReply, chatTurns } from '../tokenizer/chat-turns.js';
import type { Segment } from '../tokenizer/segments.js';
import type { ChatTemplateOptions, Tokenizer } from '../tokenizer/tokenizer.js';

/** The options with which a conversation is rendered. */
export const templateOptions = ({
  tools,
  chat_template_kwargs: variables,
}: Pick<Turns, 'tools' | 'chat_template_kwargs'>): ChatTemplateOptions => ({
  ...(tools ? { tools } : {}),
  ...(variables ? { variables } : {}),
});

/**
 * The segments of a conversation for a judge: those of {@link conversationSegments}, of which nothing is learned.
 *
 * @throws DataError also for a template of verdicts that asks about steps of a solution
 */
export function turnSegments(
  tokenizer: Tokenizer,
  record: Pick<StepRecord, 'provenance'> & Turns,
  template: { readonly turns?: true; readonly tail: string },
): Segment[] {
  if (!template.turns && template.tail !== '')
    throw badTemplate(
      'prompt.template asks about steps of a solution, and here are turns of a conversation; a judge of turns is trained with prompt.template: turns',
    );
  return conversationSegments(tokenizer, record);
}

/**
 * The segments of a conversation: a `step` for each turn with the mark that ends it, and `prompt` for all between.
 *
 * @param learn whether the turns are learned; what is between never is. Default false
 * @throws DataError for what the chat template does not read, with the position of the record
 */
export function conversationSegments(
  tokenizer: Tokenizer,
  record: Pick<StepRecord, 'provenance'> & Turns,
  { learn = false }: { readonly learn?: boolean } = {},
): Segment[] {
  try {
    const { opening, turns } = chatTurns(tokenizer, messagesOfTurns(record), templateOptions(record));
    return [
      { text: opening, role: 'prompt', train: false },
      ...turns.flatMap(({ text, after }, step): Segment[] => [
        { text, role: 'step', step, train: learn },
        { text: after, role: 'prompt', train: false },
      ]),
    ];
  } catch (error) {
    const { provenance } = record;
    if (!(error instanceof DataError) || error.position || !provenance) throw error;
    throw new DataError(error.kind, error.what, { ...provenance, cause: error });
  }
}

/** The request for the verdict on the last turn, from the end of that turn to the opening of the answer. */
export function turnRequest(
  tokenizer: Tokenizer,
  { positive, negative }: { readonly positive: string; readonly negative: string },
  reason: boolean,
): string {
  const how = reason ? 'check it in one short line, then, on a line of its own, answer' : 'answer';
  const content = `Judge the last turn of the assistant: ${how} ${positive} if it is right and ${negative} if it is wrong.`;
  return afterReply(tokenizer, { role: 'user', content });
}
