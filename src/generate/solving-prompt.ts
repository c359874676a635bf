// The prompt for a model that is to solve a problem.
import type { Problem } from '../data/benchmarks/problem.js';
import { badOption, badTemplate } from '../files/data-error.js';
import { openedReasoning } from '../tokenizer/chat-reply.js';
import type { ChatMessage, Tokenizer } from '../tokenizer/tokenizer.js';
import { promptTokens } from './prompts.js';

export interface SolvingPromptOptions {
  /**
   * The text around a problem, with the placeholder `{problem}`. Default: with a chat template the problem and the wish for
   * steps and a boxed answer (the problem alone where that template puts nothing around it), else `Question: {problem}`, a new line and `Answer:`; `evaluateSolving` asks generated problems as they are.
   */
  readonly template?: string | undefined;
  /** Ask as the user of a chat. Default: where the tokenizer has a chat template. */
  readonly chat?: boolean | undefined;
  /** A system message before the chat. */
  readonly system?: string | undefined;
  /** Problems with their solutions, shown before each problem: as earlier turns, or as text. */
  readonly examples?: readonly Problem[] | undefined;
}

const PROBLEM = '{problem}';
const CHAT_REQUEST = `${PROBLEM}\n\nPlease reason step by step, and put your final answer within \\boxed{}.`;
const TEXT_REQUEST = `Question: ${PROBLEM}\nAnswer:`;

/** The answer ends where the text goes on with a question of its own. */
const TEXT_STOP = ['\nQuestion:'];

export interface SolvingPrompt {
  readonly template: string;
  readonly chat: boolean;
  /** Texts that end an answer to this prompt. */
  readonly stop: readonly string[];
  /** Whether the prompt's end opens reasoning (`<think>`); a sample that never closes it has no answer. */
  readonly inReasoning: boolean;
  /** The beginning of the reply that the prompt's end writes: the mark that opens reasoning, with the white space behind it, or nothing. */
  readonly opened: string;
  /** @throws DataError for a chat without a chat template */
  tokens(problem: string): number[];
}

/** The request as a message. A chat template that puts nothing around a message is that of a model which reads problems alone. */
function chatRequest(tokenizer: Tokenizer): string {
  const framed = tokenizer.applyChatTemplate([{ role: 'user', content: 'x' }], { addGenerationPrompt: true });
  return framed.trim() === 'x' ? PROBLEM : CHAT_REQUEST;
}

/** @throws DataError for a template without its placeholder, an example without a solution, a system message without a chat */
export function solvingPrompt(tokenizer: Tokenizer, options: SolvingPromptOptions = {}): SolvingPrompt {
  const { chat = tokenizer.hasChatTemplate, system, examples = [] } = options;
  const template = options.template ?? (chat ? chatRequest(tokenizer) : TEXT_REQUEST);
  if (template.split(PROBLEM).length !== 2)
    throw badTemplate(`the template must have ${PROBLEM} exactly once; found ${JSON.stringify(template)}`);
  if (system !== undefined && !chat)
    throw badTemplate('a system message needs a chat, and this prompt is a text');
  // A function, since $ has a meaning in texts that replace.
  const asked = (problem: string) => template.replace(PROBLEM, () => problem);
  const shown = examples.map(({ problem, solution, id }, i) => {
    if (solution !== undefined) return { request: asked(problem), solution: solution.trim() };
    throw badOption(`example ${id ?? i + 1} has no solution to show; choose examples with worked solutions`);
  });
  const opening: ChatMessage[] = [
    ...(system === undefined ? [] : [{ role: 'system', content: system }]),
    ...shown.flatMap(({ request, solution }) => [
      { role: 'user', content: request },
      { role: 'assistant', content: solution },
    ]),
  ];
  const before = shown
    .map(({ request, solution }) => `${request}${/\s$/.test(request) ? '' : ' '}${solution}\n\n`)
    .join('');
  const messages = (problem: string) => [...opening, { role: 'user', content: asked(problem) }];
  const end = chat ? tokenizer.applyChatTemplate(messages(''), { addGenerationPrompt: true }) : asked('');
  const opened = openedReasoning(end)?.mark ?? '';
  return {
    template,
    chat,
    stop: !chat && options.template === undefined ? TEXT_STOP : [],
    inReasoning: opened !== '',
    opened,
    tokens: (problem) => promptTokens(tokenizer, chat ? messages(problem) : before + asked(problem)),
  };
}
