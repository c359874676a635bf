/** An environment that an agent acts on: it opens an episode with a task and answers each turn, until the episode is done. */
import { StepTrainError } from '../native/errors.js';
import { shown } from '../native/shown.js';
import type { Message } from '../records/record.js';
import type { ToolCall } from '../records/turns.js';

/** A task as data: a problem with its answer, or whatever the environment reads. */
export type Task = Readonly<Record<string, unknown>>;

/** A turn of the agent, as the environment sees it. */
export interface AgentTurn {
  /** The text of the turn beside its calls. */
  readonly text: string;
  readonly calls: readonly ToolCall[];
}

/** The messages with which an episode begins. */
export interface Opening {
  readonly messages: readonly Message[];
}

/** The answer to a turn. */
export interface TurnReply {
  /** Results of tools and words of the user. Default none. */
  readonly messages?: readonly Message[];
  /** Whether the episode ends with this turn. Default: where there are no messages. */
  readonly done?: boolean;
  /** Reward of this turn. Default: none. */
  readonly reward?: number;
}

/**
 * An environment. Many episodes run at a time, each by a name of its own. Whatever a function throws ends its episode alone.
 */
export interface Environment {
  /** Functions that the agent may call, as JSON schemas. Default none. */
  readonly tools?: readonly unknown[];
  reset(task: Task, episode: string): Opening | Promise<Opening>;
  step(turn: AgentTurn, episode: string): TurnReply | Promise<TurnReply>;
  /** Called once for each episode that has begun, whyever it ended. */
  close?(episode: string): void | Promise<void>;
  /** Frees what the environment holds. */
  dispose?(): void | Promise<void>;
}

export const failure = (what: string, cause?: unknown) =>
  new StepTrainError('E_ENVIRONMENT', what, { cause });

/** @throws StepTrainError for what is no list of messages to begin with */
export function checkedOpening(given: unknown): Opening {
  const { messages } = (given ?? {}) as { messages?: unknown };
  if (isMessages(messages) && messages.length > 0) return { messages };
  throw failure(`reset: expected {"messages": [{"role": …, "content": …}, …]}, found ${shown(given)}`);
}

/** @throws StepTrainError for what is no reply to a turn */
export function checkedReply(given: unknown): TurnReply {
  const {
    messages = [],
    done,
    reward,
  } = (given ?? {}) as { messages?: unknown; done?: unknown; reward?: unknown };
  const isReply =
    typeof given === 'object' &&
    given !== null &&
    isMessages(messages) &&
    (done === undefined || done === null || typeof done === 'boolean') &&
    (reward === undefined || reward === null || (typeof reward === 'number' && Number.isFinite(reward)));
  if (!isReply)
    throw failure(
      `step: expected {"messages": [{"role": …, "content": …}], "done": true or false, "reward": a number}, found ${shown(given)}`,
    );
  return {
    messages,
    done: (done as boolean | null | undefined) ?? messages.length === 0,
    ...(typeof reward === 'number' ? { reward } : {}),
  };
}

function isMessages(value: unknown): value is readonly Message[] {
  return (
    Array.isArray(value) &&
    value.every(
      (message: unknown) =>
        typeof message === 'object' &&
        message !== null &&
        typeof (message as Message).role === 'string' &&
        typeof (message as Message).content === 'string',
    )
  );
}
