/** Layouts of models that reason about a solution in many lines and then say of each step whether it is right. */
import type { ChatMessage, Tokenizer } from '../../tokenizer/tokenizer.js';
import type { Solution } from '../scorer.js';
import { readVerdicts, type VerdictPattern } from './pattern.js';

/** The names that a card and messages use. `pattern`: request and pattern of the card. */
export const GENERATIVE_LAYOUTS = ['gen_prm', 'think_prm', 'pattern'] as const;
export type GenerativeLayout = (typeof GENERATIVE_LAYOUTS)[number];

/** Verdicts of one vote by step; null where none can be read. */
export type Vote = readonly (1 | 0 | null)[];

export interface AskOptions {
  readonly n: number;
  /** Texts that end an answer; an answer that one of them ended has it at its end. */
  readonly stop: readonly string[];
  /** Max tokens. Default: those of the card. */
  readonly most?: number;
}

/** Writes `n` continuations of a prompt; none where the model cannot read it. */
export type Ask = (prompt: string, options: AskOptions) => Promise<readonly string[]>;

type Asked = Pick<Solution, 'problem' | 'steps'>;

/** Votes on a solution; fewer than `votes` where a prompt is too long. */
export type AskVotes = (solution: Asked, ask: Ask, votes: number) => Promise<readonly Vote[]>;

export interface PatternSettings extends VerdictPattern {
  /** The user's message, with {problem} and {steps}. */
  readonly request: string;
  /** Beginning of the answer. */
  readonly begin?: string | undefined;
}

/** `Step 1: ` before each step, which has no number of its own then. */
const numberedLines = (steps: readonly string[]) =>
  steps.map((step, i) => `Step ${i + 1}: ${step.replace(/Step \d+:/g, '').trim()}`).join('\n');

/** A whole solution is judged in one answer; verdicts are read up to where it stops. */
const wholeSolutions =
  (
    tokenizer: Tokenizer,
    { request, begin = '', ...pattern }: PatternSettings,
    stop: readonly string[],
  ): AskVotes =>
  async ({ problem, steps }, ask, votes) => {
    const fill = { '{problem}': problem, '{steps}': numberedLines(steps) };
    const content = request.replace(/\{problem\}|\{steps\}/g, (name) => fill[name as keyof typeof fill]);
    const prompt = asking(tokenizer, [{ role: 'user', content }]) + begin;
    const answers = await ask(prompt, { n: votes, stop });
    return answers.map((text) => readVerdicts(text, steps.length, pattern));
  };

const asking = (tokenizer: Tokenizer, messages: readonly ChatMessage[]) =>
  tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });

/** ThinkPRM (arXiv 2504.16828): a verdict in a box for each step up to the first wrong one, in order. */
const THINK_PRM: PatternSettings = {
  request:
    'You are given a math problem and a proposed step-by-step solution:\n\n[Math Problem]\n\n{problem}\n\n[Solution]\n\n{steps}\n\n' +
    'Review and critique each step in the proposed solution to determine whether each step is correct. ' +
    'If the solution is incomplete, only verify the provided steps.',
  begin: "\nLet's verify step by step:",
  verdict: '\\boxed{{verdict}}',
  words: ['correct', 'incorrect'],
};
const THINK_PRM_ENDS = ['Is the solution correct?', '</think>'];

const GEN_PRM_SYSTEM =
  'You are a math teacher. Your task is to review and critique the paragraphs in solution step by step.';
const JUDGEMENT = '<output>\n**Judgement**: $\\boxed';
/** Tokens of a judgement in a box, with what closes it. */
const JUDGEMENT_TOKENS = 20;

/**
 * GenPRM (arXiv 2504.00891) without its programs: for each step an analysis, then a judgement in a box. Earlier steps stand before it
 * with the first vote's analyses. An analysis that does not end within the most tokens is judged as it is.
 */
const genPrm =
  (tokenizer: Tokenizer): AskVotes =>
  async ({ problem, steps }, ask, votes) => {
    const messages: ChatMessage[] = [{ role: 'system', content: GEN_PRM_SYSTEM }];
    const byStep: (1 | 0 | null)[][] = [];
    for (const [i, step] of steps.entries()) {
      messages.push({ role: 'user', content: i === 0 ? `${problem}\n${step}` : step });
      const prompt = asking(tokenizer, messages);
      const start = `<analyze>\nLet's analyze the Paragraph ${i + 1} step by step: `;
      const analyses = await ask(prompt + start, { n: votes, stop: ['</analyze>\n'] });
      const texts = await Promise.all(
        analyses.map(async (analysis) => {
          const before = `${start}${analysis.split('</analyze>')[0]}</analyze>\n${JUDGEMENT}`;
          const [rest] = await ask(prompt + before, { n: 1, stop: ['</output>\n'], most: JUDGEMENT_TOKENS });
          return rest === undefined ? undefined : before + rest;
        }),
      );
      const read = texts.filter((text) => text !== undefined);
      byStep.push(read.map(boxed));
      // Later steps cannot be read either.
      if (read.length === 0) break;
      messages.push({ role: 'assistant', content: read[0] as string });
    }
    return Array.from({ length: votes }, (_, vote) => steps.map((_, i) => byStep[i]?.[vote] ?? null));
  };

function boxed(text: string): 1 | 0 | null {
  const judgement = text.slice(text.lastIndexOf(JUDGEMENT));
  return judgement.includes('boxed{Yes}') ? 1 : judgement.includes('boxed{No}') ? 0 : null;
}

/** How the votes of a layout are asked for. `pattern` has its settings from the card. */
export function votesBy(
  layout: GenerativeLayout,
  tokenizer: Tokenizer,
  pattern?: PatternSettings | undefined,
): AskVotes {
  if (layout === 'gen_prm') return genPrm(tokenizer);
  if (layout === 'think_prm') return wholeSolutions(tokenizer, THINK_PRM, THINK_PRM_ENDS);
  return wholeSolutions(tokenizer, pattern as PatternSettings, []);
}
