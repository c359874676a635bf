// Config section `run`: place, randomness and device.
import { z } from 'zod';
import { count, countOrOff, section, seed, text } from './fields.js';

export const run = section({
  output_dir: text()
    .default('runs/run')
    .describe(
      'Directory of the run. Where it already holds a run, a number is appended: nothing is overwritten.',
    ),
  seed: seed().default(42).describe('Seed of initialisation, data order, dropout and sampling.'),
  device: z
    .string()
    .regex(/^(auto|cpu|cuda(:\d+)?)$/)
    .default('auto')
    .meta({ expects: '"auto", "cpu", "cuda" or "cuda:N"' })
    .describe('Where to compute: `auto` takes the first GPU and otherwise the processor.'),
  threads: countOrOff().default(0).describe('Processor threads; 0 for one per core.'),
  max_skipped_steps: count()
    .default(5)
    .describe(
      'A step whose loss or gradient is NaN or infinite is skipped; so many of them in a row stop the run.',
    ),
  max_minutes: z
    .number()
    .min(0)
    .default(0)
    .meta({ expects: '0 (no limit) or a number of minutes' })
    .describe(
      'End after so many minutes, for a queue that kills what runs longer: the step under way is finished, a checkpoint ' +
        'written and what was trained saved as it stands, without the final evaluation; `--resume` goes on for as many. ' +
        '0 for no limit. Leave time for a step and for writing.',
    ),
  logging_steps: count().default(10).describe('Write metrics.jsonl and a progress line every so many steps.'),
  gradient_checkpointing: z
    .boolean()
    .default(false)
    .describe(
      'Recompute each block in the backward pass: far less memory for about a third more time, same result.',
    ),
}).describe('The run: place, randomness and device.');
