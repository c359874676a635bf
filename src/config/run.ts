// Config section `run`: directory, randomness and device.
import { z } from 'zod';
import { MEMORY_FRACTION } from '../runtime/memory.js';
import {
  choice,
  count,
  countOrOff,
  flag,
  nonNegative,
  positiveShare,
  section,
  seed,
  text,
} from './fields.js';
import { TRACKERS } from './trackers.js';

export const run = section({
  output_dir: text('runs/run').describe(
    'Directory of the run. If it already holds a run, a number is appended: nothing is overwritten.',
  ),
  seed: seed().default(42).describe('Seed of initialisation, data order, dropout and sampling.'),
  device: z
    .string()
    .regex(/^(auto|cpu|cuda(:\d+)?)$/)
    .default('auto')
    .meta({ expects: '"auto", "cpu", "cuda" or "cuda:N"' })
    .describe('Where to compute: `auto` is the first GPU, or the processor if there is none.'),
  memory_fraction: positiveShare(MEMORY_FRACTION)
    .meta({ expects: 'a number above 0, at most 1' })
    .describe(
      "Share of the device's memory that the run may plan for, so that others find room: 0.45 each for two runs on one GPU. " +
        'It plans for at most 0.9 of what is free.',
    ),
  threads: countOrOff(0).describe(
    'Processor threads; 0 for one per core, also beside other programs: no thread waits for one that has no core.',
  ),
  shards: countOrOff(0).describe(
    'Parts into which an optimizer batch is cut for the processes of a job, and whose gradients are added in one fixed order: ' +
      'with the same number a run has the same bits in one process and in many. 0 for one per process at the start.',
  ),
  collectives: choice('auto', 'tcp', 'shm', 'mpi', 'nccl').describe(
    'The carrier of gradients between the processes of a job: its TCP connections, memory that the processes of a machine share (`shm`; ' +
      'processors), MPI (`steptrain build --mpi`; processors) or NCCL (GPUs). `auto` is MPI where mpirun has started the processes and ' +
      'the plugin is compiled, else shm where all processes are on one machine, else TCP. The bits are the same.',
  ),
  overlap: flag(true).describe(
    'Whether bytes travel between the processes of a job while they compute: gradients during the backward pass, and with ' +
      '`run.shard_base` a layer while the one before it runs, for which a second one is whole. `false` sends them when they are ' +
      'needed, but for TCP. The bits are the same.',
  ),
  zero: z
    .union([z.literal(0), z.literal(1), z.literal(2)])
    .default(0)
    .meta({ expects: '0, 1 or 2' })
    .describe(
      'Stage of ZeRO, for the processes of a job: with 1 each holds the optimizer moments of its share of the trained parameters ' +
        'alone, 8 bytes a parameter divided by their number, and gets the rest of each update from the others; with 2 gradients are ' +
        'summed and freed layer by layer during the backward pass too, where run.shards is the number of processes and each shard is ' +
        'a single micro-batch. The bits are the same.',
    ),
  shard_base: flag(false).describe(
    'With LoRA, for the processes of a job on one machine that shm, MPI or NCCL connects: each holds its share of the base’s layers alone, and ' +
      'a layer is gathered when it runs. Recomputes each block in the backward pass, and needs a method that does not sample. The bits are the same.',
  ),
  max_skipped_steps: count(5).describe(
    'A step whose loss or gradient is NaN or infinite is skipped; this many in a row stop the run.',
  ),
  max_tokens: countOrOff(0).describe(
    'End the run once so many tokens have passed forward and backward, all stages together; 0 for no limit. A method that learns ' +
      'from rows in a single stage repeats them until then, whatever num_train_epochs, and plans its learning rate for it; others may end sooner. What ' +
      'compares arms at equal tokens.',
  ),
  max_minutes: nonNegative(0)
    .meta({ expects: '0 (no limit) or a number of minutes' })
    .describe(
      'Max minutes, for a job queue that kills longer runs: the current step is finished, a checkpoint and the trained ' +
        'parameters are saved, without the final evaluation; `--resume` continues for as long again. 0 for no limit. ' +
        'Leave time for a step and for writing.',
    ),
  accept_weak_reward: flag(false).describe(
    'Learn from a reward model, or label by a judge, although `steptrain eval reward-model` has found that it hardly ranks right above ' +
      'wrong within a problem. `--accept-weak-reward` sets it.',
  ),
  logging_steps: count(10).describe(
    'Max steps between lines of metrics.jsonl; a stage of fewer than ten times as many writes about ten lines: one of 30 steps every third, also at 5.',
  ),
  gradient_checkpointing: z
    .union([z.literal('auto'), z.boolean()])
    .default('auto')
    .meta({ expects: 'auto, true or false' })
    .describe(
      'Whether each block is computed again in the backward pass: far less memory, about a third more time, the same bits. `auto` does so ' +
        'where the longest sequence would not fit otherwise, and with `run.shard_base`.',
    ),
  report_to: z
    .array(z.enum(['tensorboard', ...TRACKERS]))
    .default([])
    .meta({ expects: `a list of tensorboard, ${TRACKERS.join(', ')}` })
    .describe(
      'Trackers that a run is logged with once it has ended or stopped, by their Python packages, on this machine; `steptrain export` does ' +
        'it later, and online. Events for TensorBoard are written in any case, as it goes.',
    ),
}).describe('The run: directory, randomness and device.');
