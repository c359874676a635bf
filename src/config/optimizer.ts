// The section `optimizer`: its keys are those of every training stage, whose own section names only what it has otherwise.
import { z } from 'zod';
import { optimization } from './training.js';

/** The keys of an optimizer, all optional: a stage has defaults of its own. */
export const optimizer = z
  .strictObject(
    Object.fromEntries(
      Object.entries(optimization({ learning_rate: 1e-4 })).map(([key, field]) => [
        key,
        field.unwrap().optional().meta(described(field)),
      ]),
    ) as { [Key in keyof Fields]: z.ZodOptional<ReturnType<Fields[Key]['unwrap']>> },
  )
  .optional()
  .describe(
    'Settings that the training stages share. A stage takes a key from its own section, else from here, else its default; the section ' +
      'of a stage may have any of these keys.',
  );

type Fields = ReturnType<typeof optimization>;

/** `optimizer:` of a recipe. */
export type OptimizerInput = z.input<typeof optimizer>;

function described(field: z.ZodType): { readonly description?: string; readonly expects?: string } {
  const { description, expects } = (field.meta() ?? {}) as { description?: string; expects?: string };
  return { ...(description && { description }), ...(expects && { expects }) };
}
