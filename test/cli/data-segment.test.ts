// Texts with chains of thought as rows of steps; a judge that reads by the rule of its card.
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { formatSegmented, segmentData } from '../../src/cli/data/segment.js';
import { solutionsOf } from '../../src/data/solution-rows.js';
import { openDevice } from '../../src/runtime/device.js';
import { openScorer } from '../../src/scoring/open.js';
import { temporaryDirectory } from '../weights/temporary-directory.js';

const TEXT = '<think>\nTwo and three.\n\nThat is:\n\n$$5$$\n</think>\n\nIt is 5.';

it('writes a row of steps for each text, with their places', async () => {
  const directory = temporaryDirectory();
  const [from, to] = [join(directory, 'r1.jsonl'), join(directory, 'steps.jsonl')];
  const rows = [
    { question: '2 + 3?', response: TEXT, answer: '5' },
    { question: 'And?', response: '<think>\n\n</think>' },
  ];
  writeFileSync(from, rows.map((row) => JSON.stringify(row)).join('\n'));
  const result = await segmentData({ from, to, rule: 'thoughts/1' });
  expect(formatSegmented(result)).toBe(
    `1 solution, 3 steps by thoughts/1: 2 of thoughts, 1 of answers; none has a label\n1 text without a step was left out\nwrote ${to}`,
  );
  const written = JSON.parse(readFileSync(to, 'utf8'));
  const texts = ['Two and three.', 'That is:\n\n$$5$$', 'It is 5.'];
  expect(written).toEqual({
    ...{ question: '2 + 3?', response: TEXT, answer: '5' },
    ...{ problem: '2 + 3?', text: TEXT, segmentation: 'thoughts/1', parts: ['thought', 'thought', 'answer'] },
    steps: texts.map((text) => ({ text, label: null })),
    spans: texts.map((text) => [TEXT.indexOf(text), TEXT.indexOf(text) + text.length]),
  });
  // The rows are solutions again, and a scorer with the rule cuts the text of the first file into the same.
  expect(solutionsOf(written)).toMatchObject([{ problem: '2 + 3?', steps: texts }]);
  expect(solutionsOf(rows[0]!, { segmentation: 'thoughts/1' })[0]?.steps).toEqual(texts);
  expect(solutionsOf(rows[0]!)[0]?.steps).not.toEqual(texts);
  await expect(segmentData({ from, to, rule: 'thoughts/1' })).rejects.toThrow('is there already');
});

it('is the rule of a scorer whose card has it', async () => {
  const model = temporaryDirectory();
  cpSync(fileURLToPath(new URL('../golden/trl_prm/qwen2-trained', import.meta.url)), model, {
    recursive: true,
  });
  const prompt = { template: '{problem}\n{steps}\n', segmentation: 'thoughts/1' };
  const judge = {
    ...{ kind: 'reward_model', type: 'prm', head: 'classes', input: 'whole', max_length: 64 },
    ...{ threshold: 'greedy', prompt },
  };
  const device = openDevice('cpu', { threads: 1 });
  onTestFinished(() => device.dispose());
  const opened = async (card: object) => {
    writeFileSync(join(model, 'steptrain.json'), JSON.stringify({ method: 'reward', judge: card }));
    const scorer = await openScorer(device, model);
    scorer.dispose();
    return scorer.segmentation;
  };
  expect(await opened(judge)).toBe('thoughts/1');
  expect(await opened({ ...judge, prompt: { template: prompt.template } })).toBeUndefined();
  await expect(opened({ ...judge, prompt: { ...prompt, segmentation: 'thoughts/9' } })).rejects.toThrow(
    'judge.prompt.segmentation',
  );
});

it('loses no column that has the name of one of its own', async () => {
  const directory = temporaryDirectory();
  const [from, to] = [join(directory, 'rows.jsonl'), join(directory, 'out.jsonl')];
  const cut = (row: object) => {
    writeFileSync(from, JSON.stringify(row));
    return segmentData({ from, to, rule: 'thoughts/1', problem: 'question', solution: 'response' });
  };
  const row = { question: '2 + 3?', response: TEXT };
  const labelled = { ...row, steps: [{ text: 'a', label: 1 }] };
  await expect(cut(labelled)).rejects.toThrow("column 'steps' is there already, and would be lost");
  await expect(cut({ ...row, problem: 'Another.' })).rejects.toThrow("column 'problem' is there already");
  await expect(cut({ ...labelled, segmentation: 'thoughts/0' })).rejects.toThrow("column 'steps'");
  // Rows that it cut itself are cut again.
  await cut({ ...row, steps: [{ text: 'a', label: null }], segmentation: 'thoughts/0' });
  expect(JSON.parse(readFileSync(to, 'utf8'))).toMatchObject({ segmentation: 'thoughts/1', text: TEXT });
});

it('says where a row has steps already', async () => {
  const directory = temporaryDirectory();
  const from = join(directory, 'steps.jsonl');
  writeFileSync(from, JSON.stringify({ problem: 'a', steps: ['b'] }));
  await expect(segmentData({ from, to: join(directory, 'out.jsonl'), rule: 'thoughts/1' })).rejects.toThrow(
    "column 'steps' is a list of steps already",
  );
});
