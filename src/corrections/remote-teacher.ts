/** A model behind an OpenAI-compatible endpoint as teacher. */
import { attempt } from '../native/attempt.js';
import { ChatClient, type ChatClientOptions, type ChatSettings } from '../remote/chat.js';
import { type JsonObject, parseJson } from '../weights/json.js';
import type { Correction, Teacher, TeacherFailure, WrongStep } from './teacher.js';

export interface RemoteTeacherOptions extends ChatClientOptions, ChatSettings {
  /** Tries until an answer can be read. Default 3. */
  readonly tries?: number;
}

const INSTRUCTION =
  'You are given a mathematics problem, the correct steps of its solution so far, a flawed next step, and the right step in its place. ' +
  'Answer with one JSON object and nothing else: {"reflection": "at most 40 words that name the error of the flawed step, without the ' +
  'final answer of the problem", "improvement": "the corrected step only, in one line"}.';

/** @throws StepTrainError for an invalid address */
export function remoteTeacher({
  tries = 3,
  temperature,
  maxTokens,
  ...server
}: RemoteTeacherOptions): Teacher & {
  close(): void;
} {
  const client = new ChatClient(server);
  return {
    name: server.model,
    async correct(steps, signal) {
      const found: (Correction | TeacherFailure)[] = steps.map(() => 'unreadable');
      const done = await client.askAll(
        steps.map((step) => [{ role: 'user', content: `${INSTRUCTION}\n\n${described(step)}` }]),
        {
          tries,
          ...(temperature === undefined ? {} : { temperature }),
          ...(maxTokens === undefined ? {} : { maxTokens }),
          signal,
          take({ text }, i) {
            const correction = readCorrection(text);
            if (correction) found[i] = correction;
            return correction !== undefined;
          },
        },
      );
      return done && found;
    },
    close: () => client.close(),
  };
}

function described({ problem, before, wrong, right }: WrongStep): string {
  const steps = before.map((step, i) => `${i + 1}. ${step}`).join('\n') || '(none)';
  return `Problem:\n${problem}\n\nCorrect steps so far:\n${steps}\n\nFlawed step:\n${wrong}\n\nRight step:\n${right}`;
}

/** The correction in an answer: strict JSON, alone or in a code fence. */
export function readCorrection(text: string): Correction | undefined {
  const bare = text
    .trim()
    .replace(/^```(?:json)?\s*/, '')
    .replace(/\s*```$/, '');
  return attempt(() => {
    const { reflection, improvement, ...rest } = parseJson(bare, 'the answer') as JsonObject;
    if (typeof reflection !== 'string' || typeof improvement !== 'string' || Object.keys(rest).length > 0)
      return undefined;
    return { reflection: reflection.trim(), improvement: improvement.trim() };
  });
}
