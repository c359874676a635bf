import { Template } from '@huggingface/jinja';
import { DataError, reasonOf } from '../files/data-error.js';
import type { ChatMessage, ChatTemplateOptions } from './tokenizer.js';

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

  constructor(
    private readonly templates: ChatTemplates,
    private readonly specialTokens: Readonly<Record<string, unknown>>,
  ) {}

  get isEmpty(): boolean {
    return this.templates.size === 0;
  }

  render(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    const name = this.templateName(options);
    try {
      return this.compile(name).render({
        ...this.specialTokens,
        ...options.variables,
        messages,
        tools: options.tools ?? null,
        documents: null,
        add_generation_prompt: options.addGenerationPrompt ?? false,
      });
    } catch (error) {
      if (error instanceof DataError) throw error;
      throw new DataError(
        'template',
        `the chat template '${name}' cannot render these ${messages.length} messages (${reasonOf(error)})`,
        undefined,
        { cause: error },
      );
    }
  }

  private templateName({ template, tools }: ChatTemplateOptions): string {
    if (this.isEmpty) {
      throw new DataError(
        'template',
        'the tokenizer has no chat template; add chat_template.jinja to the model directory or use a plain prompt template',
      );
    }
    const name = template ?? (tools !== undefined && this.templates.has('tool_use') ? 'tool_use' : 'default');
    if (!this.templates.has(name)) {
      throw new DataError(
        'template',
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
        throw new DataError(
          'template',
          `the chat template '${name}' is not valid Jinja (${reasonOf(error)})`,
          undefined,
          {
            cause: error,
          },
        );
      }
      this.compiled.set(name, template);
    }
    return template;
  }
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
    throw new DataError(
      'tokenizer',
      "'chat_template' is neither a text nor a list of objects with name and template",
      {
        file,
      },
    );
  }
  return new Map(named as [string, string][]);
}

function namedTemplate(item: unknown): [string, string] | undefined {
  const { name, template } = (item ?? {}) as { name?: unknown; template?: unknown };
  return typeof name === 'string' && typeof template === 'string' ? [name, template] : undefined;
}
