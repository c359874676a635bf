import type { z } from 'zod';
import { RunError } from '../run/error.js';

/**
 * Parses the content of a file by `schema`.
 *
 * @param refusal the sentence for anything else, such as `eval.json is not an evaluation of steptrain`; the first wrong
 * place follows
 * @throws RunError
 */
export function readAs<Value>(schema: z.ZodType<Value>, value: unknown, refusal: string): Value {
  const { data, error } = schema.safeParse(value);
  if (error === undefined) return data as Value;
  const { path = [], message } = error.issues[0] ?? {};
  throw new RunError([refusal, ...(path.length > 0 ? [path.join('.')] : []), message].join(': '));
}
