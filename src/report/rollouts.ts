/** samples.jsonl: the answers of a policy and their rewards. */
import { readFileSync } from 'node:fs';
import { attempt } from '../native/attempt.js';
import { isObject, numbersIn } from './values.js';

/** The answers to one question. */
export interface Rollout {
  readonly iteration: number;
  readonly problem: string;
  /** The steps up to the judged one, for a policy that judges. */
  readonly steps: readonly string[];
  /** Label of the judged step. */
  readonly label?: 0 | 1 | undefined;
  /** The right answer of a problem that is solved. */
  readonly answer?: string | undefined;
  readonly answers: readonly RolloutAnswer[];
}

export interface RolloutAnswer {
  /** A whole solution, or undefined for a verdict. */
  readonly text?: string | undefined;
  /** The turns of an episode; undefined for a solution in one piece. */
  readonly turns?: readonly RolloutTurn[] | undefined;
  readonly verdict?: 0 | 1 | undefined;
  /** The text before a verdict, for a policy that writes one. */
  readonly reason?: string | undefined;
  readonly reward: number;
  readonly advantage?: number | undefined;
  readonly logprob?: number | undefined;
  readonly tokens: number;
  readonly truncated: boolean;
  /** Value of each source of rewards. */
  readonly terms: Readonly<Record<string, number>>;
  /** Rewards by token, where they are not 0. */
  readonly placed: Readonly<Record<string, number>>;
}

export interface RolloutTurn {
  readonly text: string;
  /** Messages that came back, a line for each. */
  readonly results: readonly string[];
  readonly reward: number;
  readonly advantage?: number | undefined;
}

/** Largest part of a file that is read, from its end. */
const MAX_BYTES = 16 << 20;

/** The rollouts of a file, and sentences on what of it is left out; rows that are no rollouts are passed over. */
export function readRollouts(
  path: string,
  maxBytes = MAX_BYTES,
): { readonly rollouts: readonly Rollout[]; readonly notes: readonly string[] } {
  const bytes = readFileSync(path);
  const isCut = bytes.length > maxBytes;
  const lines = bytes
    .subarray(Math.max(0, bytes.length - maxBytes))
    .toString('utf8')
    .split('\n')
    // The first line of a part is the end of one.
    .slice(isCut ? 1 : 0)
    .filter((line) => line !== '');
  const rows = lines.map((line) => attempt((): unknown => JSON.parse(line)));
  const rollouts = rows.flatMap(rollout);
  const unread = rows.filter((row) => row === undefined).length;
  const [first] = rollouts;
  return {
    rollouts,
    notes: [
      ...(isCut
        ? [
            `samples.jsonl: its last ${Math.round(maxBytes / 2 ** 20)} MiB are read, from iteration ${first?.iteration ?? 0} on`,
          ]
        : []),
      ...(unread > 0 ? [`samples.jsonl: ${unread} lines cannot be read and are left out`] : []),
    ],
  };
}

function rollout(row: unknown): Rollout[] {
  if (!isObject(row) || typeof row.problem !== 'string') return [];
  const listed = Array.isArray(row.answers) ? row.answers : Array.isArray(row.solutions) ? row.solutions : [];
  return [
    {
      iteration: typeof row.iteration === 'number' ? row.iteration : 0,
      problem: row.problem,
      steps: Array.isArray(row.steps) ? row.steps.filter((step) => typeof step === 'string') : [],
      label: bit(row.label),
      answer: typeof row.answer === 'string' ? row.answer : undefined,
      answers: listed.filter(isObject).map(answerOf),
    },
  ];
}

function turnOf(row: Record<string, unknown>): RolloutTurn {
  const results = Array.isArray(row.results) ? row.results.filter((line) => typeof line === 'string') : [];
  return {
    text: typeof row.text === 'string' ? row.text : '',
    results,
    reward: numeric(row.reward) ?? 0,
    advantage: numeric(row.advantage),
  };
}

function answerOf(row: Record<string, unknown>): RolloutAnswer {
  const placed = Array.isArray(row.rewards) ? Object.fromEntries(row.rewards.entries()) : row.rewards;
  return {
    text: typeof row.text === 'string' ? row.text : undefined,
    turns: Array.isArray(row.turns) ? row.turns.filter(isObject).map(turnOf) : undefined,
    verdict: bit(row.verdict),
    reason: typeof row.reason === 'string' ? row.reason : undefined,
    reward: typeof row.reward === 'number' ? row.reward : 0,
    advantage: Array.isArray(row.advantages) ? numeric(row.advantages[0]) : numeric(row.advantage),
    logprob: numeric(row.logprob),
    tokens: Array.isArray(row.tokens) ? row.tokens.length : (numeric(row.tokens) ?? 0),
    truncated: row.truncated === true,
    terms: numbersIn(row.terms),
    placed: numbersIn(placed),
  };
}

const bit = (value: unknown): 0 | 1 | undefined => (value === 0 || value === 1 ? value : undefined);
const numeric = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : undefined);
