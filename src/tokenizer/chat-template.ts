import { badTemplate, badTokenizer, DataError, reasonOf } from '../files/data-error.js';
import { TemplateNames } from '../jinja/names.js';
import { Template } from '../jinja/template.js';
import { attempt } from '../native/attempt.js';
import { contentOf, contentReader, numbered, textsOf } from './content-parts.js';
import type { ChatMessage, ChatTemplateOptions } from './tokenizer.js';

/** Steps that a template may take: an ordinary one takes some hundreds for each message. */
const STEPS = 10_000_000;
const STEPS_PER_MESSAGE = 10_000;

/** Names for the reasoning before a reply, as in transformers 5: the first that is present counts. */
const REASONING = ['reasoning_content', 'thinking', 'reasoning'] as const;

/** Variables that the conversation itself gives. */
const OWN = ['messages', 'tools', 'add_generation_prompt'];

/** A message is nowhere in the text that the template writes, whatever its content. */
export class MessageLeftOut extends DataError {}

/** A model's chat templates by name; a model with one template calls it `default`. */
export type ChatTemplates = ReadonlyMap<string, string>;

/**
 * Renders conversations as Hugging Face transformers does: Jinja with blocks trimmed, the special tokens, `messages`,
 * `tools` and `add_generation_prompt` as variables.
 *
 * @param specialTokens texts such as `bos_token`, for templates that use them
 */
export class ChatRenderer {
  private readonly compiled = new Map<string, Template>();
  private readonly names: readonly TemplateNames[];

  constructor(
    private readonly templates: ChatTemplates,
    private readonly specialTokens: Readonly<Record<string, unknown>>,
  ) {
    this.names = [...templates.values()].map((source) => new TemplateNames(source));
  }

  get isEmpty(): boolean {
    return this.templates.size === 0;
  }

  /** Whether a template names a variable, or a key or role of messages; what the conversation gives is no variable of others. */
  reads(name: string, as?: 'variable'): boolean {
    if (as === 'variable') return !OWN.includes(name) && this.names.some((each) => each.variables.has(name));
    return this.names.some((each) => each.all.has(name));
  }

  render(given: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    const { continueFinalMessage = false } = options;
    const name = this.templateName(options);
    const template = this.compile(name);
    const known = given.map((message) => withReasoning(present(this.inKnownRole(message))));
    const messages = continueFinalMessage ? openEnded(known) : known;
    const refuse = (what: string, why: string, cause?: unknown) =>
      badTemplate(`the chat template '${name}' ${what} these ${messages.length} messages (${why})`, {
        cause,
      });
    const own = OWN.find((key) => Object.hasOwn(options.variables ?? {}, key));
    if (own !== undefined) throw badTemplate(`${own} comes from the conversation and is no further variable`);
    const steps = STEPS + STEPS_PER_MESSAGE * messages.length;
    const asGiven = (conversation: readonly ChatMessage[]) =>
      template.render(
        {
          documents: null,
          ...this.specialTokens,
          ...options.variables,
          messages: conversation,
          tools: options.tools ?? null,
          add_generation_prompt: options.addGenerationPrompt ?? false,
        },
        { steps },
      );
    const readable = contentReader(known, asGiven);
    const written = (conversation: readonly ChatMessage[]) => asGiven(conversation.map(readable));
    let rendered: string;
    try {
      rendered = written(messages);
    } catch (error) {
      throw refuse('cannot render', reasonOf(error), error);
    }
    const text = continueFinalMessage ? beforeMark(rendered) : rendered;
    if (text === undefined || (continueFinalMessage && !holds(text, given.at(-1))))
      throw refuse('cannot continue the last of', 'it does not write that one as it is');
    const lost = options.mayLeaveOut ? -1 : leftOut(known, text, written);
    if (lost >= 0) throw this.leavesOut(name, given, lost);
    const uncalled = withoutCalls(known, written);
    if (uncalled >= 0)
      throw badTemplate(
        `the chat template '${name}' leaves out tool calls of message ${uncalled + 1}, which has several; give each a message of its own ` +
          'with its result after it, or take a model whose template writes them',
      );
    return text;
  }

  private leavesOut(name: string, given: readonly ChatMessage[], at: number): MessageLeftOut {
    const { role } = given[at] as ChatMessage;
    const told = JSON.stringify(role.slice(0, 40));
    const isOwn = role === 'user' || role === 'assistant' || this.reads(role);
    const why = isOwn
      ? `nothing of message ${at + 1}, of the role ${told}, is in its text; leave that out, or take a model whose template shows it`
      : `the role ${told} is none of its own; use ${role !== 'system' && this.reads('system') ? 'system, ' : ''}user or assistant`;
    return new MessageLeftOut(
      'template',
      `the chat template '${name}' leaves one out of these ${given.length} messages (${why})`,
    );
  }

  /** OpenAI's newer name of the system role, which most templates do not have, and many pass over in silence. */
  private inKnownRole(message: ChatMessage): ChatMessage {
    return message.role === 'developer' && !this.reads('developer')
      ? { ...message, role: 'system' }
      : message;
  }

  private templateName({ template, tools }: ChatTemplateOptions): string {
    if (this.isEmpty) {
      throw badTemplate(
        'the tokenizer has no chat template; add chat_template.jinja to the model directory or use a plain prompt template',
      );
    }
    const name = template ?? (tools !== undefined && this.templates.has('tool_use') ? 'tool_use' : 'default');
    if (!this.templates.has(name)) {
      throw badTemplate(
        `the tokenizer has no chat template named '${name}'; it has ${[...this.templates.keys()].join(', ')}`,
      );
    }
    return name;
  }

  private compile(name: string): Template {
    let template = this.compiled.get(name);
    if (template === undefined) {
      try {
        template = new Template(this.templates.get(name) ?? '');
      } catch (error) {
        throw badTemplate(`the chat template '${name}' is not valid Jinja (${reasonOf(error)})`, {
          cause: error,
        });
      }
      this.compiled.set(name, template);
    }
    return template;
  }
}

/** The message without keys that have no value, as in transformers: templates would write `None`. */
function present(message: ChatMessage): ChatMessage {
  const hasNone = Object.values(message).some((value) => value === null);
  if (!hasNone) return message;
  return Object.fromEntries(Object.entries(message).filter(([, value]) => value !== null)) as ChatMessage;
}

/** The message with the reasoning under all names that templates have for it, as in transformers. */
function withReasoning(message: ChatMessage): ChatMessage {
  const reasoning = REASONING.map((name) => message[name]).find((value) => value != null);
  return reasoning === undefined
    ? message
    : { thinking: reasoning, ...message, reasoning_content: reasoning };
}

/** Contents up to this length may stand in a text by chance. */
const SHORT = 16;

/**
 * The first message that `text` shows nothing of; -1: there is none. Templates may shorten and rewrite contents: a message whose
 * content is not there word for word is looked for again with a number for its content. A call may stand for the text beside it.
 */
function leftOut(
  messages: readonly ChatMessage[],
  text: string,
  written: (messages: readonly ChatMessage[]) => string,
): number {
  const unsure = messages.map((message) => {
    const { content, tool_calls: calls } = message;
    if (typeof content !== 'string' || content.trim() === '' || calls !== undefined) return false;
    return !holds(text, message) || (messages.length > 1 && content.trim().length <= SHORT);
  });
  if (!unsure.includes(true)) return -1;
  const shown = attempt(() =>
    written(
      messages.map((message, i) =>
        unsure[i] ? { ...message, ...contentOf(textsOf(message).map(() => numbered(i))) } : message,
      ),
    ),
  );
  if (shown === undefined) return -1;
  return unsure.findIndex((isUnsure, i) => isUnsure && !shown.includes(numbered(i)));
}

/** The first message of whose calls a template writes some alone, as GPT-OSS's does; -1: there is none. */
function withoutCalls(
  messages: readonly ChatMessage[],
  written: (messages: readonly ChatMessage[]) => string,
): number {
  const callsOf = ({ tool_calls: calls }: ChatMessage) => (Array.isArray(calls) ? calls : []);
  const hasSeveral = messages.map((message) => callsOf(message).length > 1);
  if (!hasSeveral.includes(true)) return -1;
  const renamed = (call: unknown, at: number) => {
    const { function: called, ...rest } = call as { readonly function?: object };
    return called === undefined
      ? { ...rest, name: numbered(at) }
      : { ...rest, function: { ...called, name: numbered(at) } };
  };
  const shown = attempt(() =>
    written(
      messages.map((message, i) =>
        hasSeveral[i] ? { ...message, tool_calls: callsOf(message).map(renamed) } : message,
      ),
    ),
  );
  if (shown === undefined) return -1;
  return messages.findIndex(
    (message, i) => hasSeveral[i] && callsOf(message).some((_, at) => !shown.includes(numbered(at))),
  );
}

/** Written after the message that is to be continued. A template that trims messages takes the space away. */
const MARK = 'CONTINUE_FINAL_MESSAGE_TAG ';

/** The last message with the mark at its end. */
function openEnded(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const last = messages.at(-1);
  if (typeof last?.content !== 'string')
    throw badTemplate('only a last message with a text can be continued');
  const texts = textsOf(last);
  return [...messages.slice(0, -1), { ...last, ...contentOf(texts.with(-1, `${texts.at(-1)}${MARK}`)) }];
}

/** The text before the mark, trimmed as the template would have, as in transformers. */
function beforeMark(text: string): string | undefined {
  const at = text.lastIndexOf(MARK.trimEnd());
  if (at < 0) return undefined;
  return text.startsWith(MARK, at) ? text.slice(0, at) : text.slice(0, at).trimEnd();
}

function holds(text: string, message: ChatMessage | undefined): boolean {
  return message === undefined || textsOf(message).every((part) => text.includes(part.trim()));
}

/**
 * The `chat_template` entry of tokenizer_config.json: one template, or a list of named ones.
 *
 * @throws DataError for anything else
 */
export function chatTemplatesOf(entry: unknown, file: string): ChatTemplates {
  if (entry === undefined || entry === null) return new Map();
  if (typeof entry === 'string') return new Map([['default', entry]]);
  const named = Array.isArray(entry) ? entry.map((item: unknown) => namedTemplate(item)) : [undefined];
  if (named.includes(undefined)) {
    throw badTokenizer("'chat_template' is neither a text nor a list of objects with name and template", {
      file,
    });
  }
  return new Map(named as [string, string][]);
}

function namedTemplate(item: unknown): [string, string] | undefined {
  const { name, template } = (item ?? {}) as { name?: unknown; template?: unknown };
  return typeof name === 'string' && typeof template === 'string' ? [name, template] : undefined;
}
