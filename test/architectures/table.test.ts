// What holds for every architecture of the table, tried on every golden model.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  ARCHITECTURES,
  modelConfigJson,
  modelWeights,
  parseModelConfig,
} from '../../src/architectures/table.js';
import { BY_TYPE, goldenDirectory, MODELS } from '../models/golden.js';

/** Read as text models, whose golden values hold for them. */
const SAME_AS: Readonly<Record<string, string>> = {
  qwen3_5: 'qwen3_5_text',
  qwen3_5_moe: 'qwen3_5_moe_text',
};

describe('the table of architectures', () => {
  it.each(ARCHITECTURES.flatMap(({ modelTypes }) => modelTypes))('has a golden model of %s', (type) => {
    expect([...BY_TYPE.keys()]).toContain(SAME_AS[type] ?? type);
  });

  it.each(MODELS)('reads what it writes of %s', (name) => {
    const path = goldenDirectory(`${name}/config.json`);
    const config = parseModelConfig(JSON.parse(readFileSync(path, 'utf8')), path);
    const { source: _, ...again } = parseModelConfig(modelConfigJson(config), 'config.json');
    // Names of classes that a configuration leaves out are written.
    expect(again.head).toMatchObject(JSON.parse(JSON.stringify(config.head)));
    expect({ ...again, source: config.source, head: config.head }).toEqual(config);
    expect(modelWeights(config).length).toBeGreaterThan(0);
  });
});
