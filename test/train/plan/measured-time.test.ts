// A dry run measures a part of a short run, however fast its steps are.
import { expect, it } from 'vitest';
import { busyMachine, type MeasuredRun, measuredTime } from '../../../src/train/plan/measured-time.js';

const stepsTaken = async (steps: number) => {
  let taken = 0;
  const open = () => ({
    begin: async () => {},
    step: async () => void taken++,
    dispose: () => {},
  });
  const stages = [{ name: 'sft', steps, settings: {}, open }] as unknown as MeasuredRun['stages'];
  const run = { measuredMs: 60_000, cycleOf: () => 1, finalShare: 0, validates: false } as const;
  await measuredTime({ ...run, stages, artefact: () => ({ append: async () => {} }) as never });
  return taken;
};

it('takes a tenth of the steps at most, and two to leave the first one out', async () => {
  expect(await stepsTaken(1)).toBe(1);
  expect(await stepsTaken(24)).toBe(3);
  expect(await stepsTaken(5)).toBe(2);
});

it('leaves out what a stage would warn of', async () => {
  const open = () => ({
    begin: async () => {},
    warn: () => Promise.reject(new Error('judged for nothing')),
    step: async () => {},
    dispose: () => {},
  });
  const stages = [{ name: 'ppo', steps: 2, settings: {}, open }] as unknown as MeasuredRun['stages'];
  const run = { measuredMs: 0, cycleOf: () => 1, finalShare: 0, validates: false } as const;
  const artefact = () => ({ append: async () => {} }) as never;
  expect((await measuredTime({ ...run, stages, artefact })).unknown).toEqual([]);
});

it('names each stage before it measures it', async () => {
  const said: string[] = [];
  const stage = (name: string) => ({
    name,
    steps: 2,
    settings: {},
    open: () => ({
      begin: async () => void said.push(`begin ${name}`),
      step: async () => {},
      dispose: () => {},
    }),
  });
  const stages = ['sft', 'ppo'].map(stage) as unknown as MeasuredRun['stages'];
  const run = { measuredMs: 0, cycleOf: () => 1, finalShare: 0, validates: false } as const;
  const artefact = () => ({ append: async () => {} }) as never;
  await measuredTime({ ...run, stages, artefact, onStage: (name) => said.push(name) });
  expect(said).toEqual(['sft', 'begin sft', 'ppo', 'begin ppo']);
});

it('says when others kept the machine busy', () => {
  expect(busyMachine(2, 2)).toBeUndefined();
  expect(busyMachine(5.24, 2)).toBe(
    'the machine was busy with other work meanwhile (load average 5.2 on 2 cores): alone the run takes less',
  );
});
