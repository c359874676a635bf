import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { collectRun } from '../../src/report/collect.js';
import { MetricLog } from '../../src/report/metric-log.js';
import { renderRun } from '../../src/report/run-page.js';
import { runTimes } from '../../src/report/times.js';
import { openLogFile } from '../../src/run/log-file.js';
import { withTensorBoard } from '../../src/run/tensorboard.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

/** A run of two phases, logged at these seconds, and its sessions as they stand in their file. */
function run(at: readonly number[], sessions: string): string {
  const folder = temporaryDirectory();
  writeFileSync(join(folder, 'config.yaml'), 'method: sft\n');
  let clock = 0;
  const log = withTensorBoard(openLogFile(join(folder, 'metrics.jsonl')), join(folder, 'tensorboard'), {
    now: () => 1000 * clock,
  });
  at.forEach((seconds, i) => {
    clock = seconds;
    log.append({ step: i + 1, phase: i + 1 < at.length ? 'sft' : 'test', loss: 1 });
  });
  log.close();
  writeFileSync(join(folder, 'sessions.jsonl'), sessions);
  return folder;
}

const timesOf = (folder: string) => {
  const log = new MetricLog(join(folder, 'metrics.jsonl'));
  log.read();
  return runTimes(folder, log);
};

const stopped = '{"begun":1000}\n{"ended":1080}\n{"begun":9000}\n{"ended":9070}\n';

it('leaves out the pause between a stop and a resume', async () => {
  const folder = run([1010, 1070, 9020, 9060], stopped);
  expect(timesOf(folder)).toEqual({
    // 1010 to 1080 and 9000 to 9020; then 40 until the test.
    phases: [
      { phase: 'sft', seconds: 90, after: 40 },
      { phase: 'test', seconds: 0, after: 0 },
    ],
    worked: 150,
    paused: { pauses: 1, seconds: 7920 },
  });
  const page = renderRun(await collectRun(folder));
  expect(page).toContain('<dt>Time</dt><dd>2 min 30 s</dd>');
  expect(page).toContain('<dt>Paused</dt><dd>2 h 12 min in 1 pause</dd>');
  expect(page).toContain('The run was stopped and resumed: 2 h 12 min in 1 pause are left out.');
});

it('lets a session that was killed end with what it logged last', () => {
  const { worked, paused } = timesOf(run([1010, 1070, 9020, 9060], '{"begun":1000}\n{"begun":9000}\n'));
  expect([worked, paused]).toEqual([70 + 60, { pauses: 1, seconds: 9000 - 1070 }]);
});

it('has no pause in a run that went through, or whose sessions are not known', async () => {
  const through = run([10, 70, 80, 90], '{"begun":0}\n{"ended":100}\n');
  expect(timesOf(through)).toMatchObject({ worked: 100, paused: { pauses: 0, seconds: 0 } });
  expect(renderRun(await collectRun(through))).not.toContain('Paused');
  expect(timesOf(run([10, 70, 80, 90], '')).worked).toBe(80);
});
