import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { INDEX_FILE, matchWeights, openCheckpoint, SINGLE_FILE } from '../../src/weights/checkpoint.js';
import { type WeightSource, writeCheckpoint } from '../../src/weights/checkpoint-writer.js';
import { writeSafetensors } from '../../src/weights/safetensors-writer.js';
import { goldenPath } from './golden.js';
import { temporaryDirectory } from './temporary-directory.js';

const weight = (
  name: string,
  values: number[],
  shape: readonly number[] = [values.length],
): WeightSource => ({
  name,
  dtype: 'F32',
  shape,
  data: () => new Uint8Array(new Float32Array(values).buffer),
});
const weights = [
  weight('b', [1, 2, 3, 4], [2, 2]),
  weight('a', [5, 6]),
  weight('c', [7]),
  weight('d', [8, 9, 10]),
];

async function sharded(): Promise<string> {
  const directory = join(temporaryDirectory(), 'model');
  await writeCheckpoint(directory, weights, { config: { model_type: 'llama' }, maxShardBytes: 24 });
  return directory;
}

function editIndex(directory: string, edit: (map: Record<string, unknown>) => void): void {
  const path = join(directory, INDEX_FILE);
  const index = JSON.parse(readFileSync(path, 'utf8'));
  edit(index.weight_map);
  writeFileSync(path, JSON.stringify(index));
}

describe('writeCheckpoint', () => {
  it('writes one file if the weights fit, and the configuration with their dtype', async () => {
    const directory = join(temporaryDirectory(), 'new', 'model');
    await writeCheckpoint(directory, weights, { config: { model_type: 'llama', dtype: 'bfloat16' } });
    expect(readdirSync(directory).sort()).toEqual(['config.json', 'model.safetensors']);
    expect(JSON.parse(readFileSync(join(directory, 'config.json'), 'utf8'))).toEqual({
      dtype: 'float32',
      model_type: 'llama',
    });
  });

  it('splits in the given order and lists the shards', async () => {
    const directory = await sharded();
    const file = (number: number) => `model-0000${number}-of-00002.safetensors`;
    expect(readdirSync(directory).sort()).toEqual(['config.json', file(1), file(2), INDEX_FILE]);
    expect(JSON.parse(readFileSync(join(directory, INDEX_FILE), 'utf8'))).toEqual({
      metadata: { total_parameters: 10, total_size: 40 },
      weight_map: { a: file(1), b: file(1), c: file(2), d: file(2) },
    });
  });

  it('puts a weight above the limit into a shard of its own', async () => {
    const directory = join(temporaryDirectory(), 'model');
    await writeCheckpoint(directory, weights, { config: {}, maxShardBytes: 10 });
    const { weight_map } = JSON.parse(readFileSync(join(directory, INDEX_FILE), 'utf8'));
    expect(Object.keys(weight_map)).toHaveLength(4);
    expect(new Set(Object.values(weight_map)).size).toBe(4);
    expect(readdirSync(directory)).toHaveLength(6);
  });

  it('writes an index that is read back', async () => {
    const checkpoint = openCheckpoint(await sharded());
    expect([...checkpoint.tensors.keys()].sort()).toEqual(['a', 'b', 'c', 'd']);
    expect([...new Float32Array(checkpoint.read('d').buffer)]).toEqual([8, 9, 10]);
    expect([...new Float32Array(checkpoint.read('c').buffer)]).toEqual([7]);
    expect(() => checkpoint.read('e')).toThrow(/there is no weight "e"/);
    checkpoint.close();
    expect(() => checkpoint.read('a')).toThrow(/has been closed/);
  });

  it('copies a real model to the same bytes', async () => {
    const source = openCheckpoint(goldenPath('qwen2'));
    const directory = join(temporaryDirectory(), 'copy');
    const copies = [...source.tensors].map(
      ([name, { shape }]): WeightSource => ({
        name,
        dtype: 'F32',
        shape,
        data: () => source.read(name),
      }),
    );
    await writeCheckpoint(directory, copies, { config: {} });
    expect(
      readFileSync(join(directory, SINGLE_FILE)).equals(readFileSync(goldenPath('qwen2/model.safetensors'))),
    ).toBe(true);
    source.close();
  });

  it('does not touch a directory that holds weights', async () => {
    const directory = await sharded();
    const before = readdirSync(directory);
    await expect(writeCheckpoint(directory, weights, { config: {} })).rejects.toThrow(
      /expected a directory without weights, found model-00001-of-00002\.safetensors/,
    );
    expect(readdirSync(directory)).toEqual(before);
  });

  it('removes its files after a failure', async () => {
    const directory = join(temporaryDirectory(), 'model');
    const broken: WeightSource = {
      ...weight('z', [1]),
      data: () => {
        throw new Error('the device is gone');
      },
    };
    await expect(
      writeCheckpoint(directory, [...weights, broken], { config: {}, maxShardBytes: 8 }),
    ).rejects.toThrow('the device is gone');
    expect(readdirSync(directory)).toEqual([]);
  });

  it('names the dtype of most values in the configuration, and refuses an empty list', async () => {
    const directory = join(temporaryDirectory(), 'model');
    const several = join(temporaryDirectory(), 'several');
    const half: WeightSource = {
      name: 'h',
      shape: [99],
      dtype: 'BF16',
      data: () => Buffer.from(new Uint16Array(99).buffer),
    };
    await writeCheckpoint(several, [...weights, half], { config: {} });
    expect(JSON.parse(readFileSync(join(several, 'config.json'), 'utf8'))).toEqual({ dtype: 'bfloat16' });
    await expect(writeCheckpoint(directory, [], { config: {} })).rejects.toThrow(/there are no weights/);
    expect(existsSync(directory)).toBe(false);
  });
});

describe('openCheckpoint', () => {
  it('says what is missing', async () => {
    const directory = temporaryDirectory();
    expect(() => openCheckpoint(directory)).toThrow(
      `${directory}: expected ${SINGLE_FILE}, ${INDEX_FILE} or pytorch_model.bin, found none`,
    );
    expect(() => openCheckpoint(join(directory, 'absent'))).toThrow(
      /cannot read .*absent: no such file or directory/,
    );
  });

  it('prefers safetensors to a file of torch.save, and reads that where it is alone', async () => {
    const directory = await sharded();
    copyFileSync(goldenPath('torch/mixed.bin'), join(directory, 'pytorch_model.bin'));
    const preferred = openCheckpoint(directory);
    expect([...preferred.tensors.keys()]).toEqual(['a', 'b', 'c', 'd']);
    preferred.close();
    const alone = temporaryDirectory();
    copyFileSync(goldenPath('torch/mixed.bin'), join(alone, 'pytorch_model.bin'));
    const read = openCheckpoint(alone);
    expect(read.tensors.get('rows')).toMatchObject({ dtype: 'F32', shape: [2, 8] });
    read.close();
    const index = (file: string) =>
      writeFileSync(join(alone, 'pytorch_model.bin.index.json'), JSON.stringify({ weight_map: { a: file } }));
    index('pytorch_model-00001-of-00001.bin');
    expect(() => openCheckpoint(alone)).toThrow(/found both/);
    index('a.safetensors');
    rmSync(join(alone, 'pytorch_model.bin'));
    expect(() => openCheckpoint(alone)).toThrow(/a: expected the name of a \.bin file in the same directory/);
  });

  it('reads a single file beside an index of that file, as MLX writes them, and compares the two', async () => {
    const directory = temporaryDirectory();
    await writeCheckpoint(join(directory, 'model'), weights, { config: {} });
    const model = join(directory, 'model');
    const index = (names: readonly string[]) =>
      writeFileSync(
        join(model, INDEX_FILE),
        JSON.stringify({ weight_map: Object.fromEntries(names.map((name) => [name, SINGLE_FILE])) }),
      );
    const names = weights.map(({ name }) => name);
    index(names);
    const read = openCheckpoint(model);
    expect([...read.tensors.keys()].sort()).toEqual([...names].sort());
    read.close();
    index(names.slice(1));
    expect(() => openCheckpoint(model)).toThrow(
      /expected every weight of the shards to be listed, found none of/,
    );
    index([...names, 'other']);
    expect(() => openCheckpoint(model)).toThrow(
      /weight 'other': expected in model.safetensors, found in no shard/,
    );
  });

  it('refuses a single file beside an index of shards', async () => {
    const directory = await sharded();
    copyFileSync(join(directory, 'model-00001-of-00002.safetensors'), join(directory, SINGLE_FILE));
    expect(() => openCheckpoint(directory)).toThrow(/found both; remove the one that is out of date/);
  });

  it.each<[string, (map: Record<string, unknown>) => void, RegExp]>([
    [
      'a weight that its shard does not hold',
      (map) => {
        map.x = map.a;
      },
      /weight 'x': expected in model-00001-of-00002\.safetensors, found in no shard/,
    ],
    [
      'a weight in another shard',
      (map) => {
        map.c = map.a;
      },
      /weight 'c': expected in model-00001.*, found model-00002/,
    ],
    [
      'a weight that is not listed',
      (map) => {
        delete map.b;
      },
      /expected every weight of the shards to be listed, found none of 'b'/,
    ],
    [
      'a shard that is absent',
      (map) => {
        map.a = 'model-9.safetensors';
      },
      /cannot read .*model-9\.safetensors: no such file/,
    ],
    [
      'an empty map',
      (map) => {
        for (const key of Object.keys(map)) delete map[key];
      },
      /weight_map: expected at least one weight/,
    ],
  ])('refuses %s', async (_, edit, message) => {
    const directory = await sharded();
    editIndex(directory, edit);
    expect(() => openCheckpoint(directory)).toThrow(message);
  });

  it('refuses a weight that is in two shards', async () => {
    const directory = await sharded();
    await writeSafetensors(join(directory, 'extra.safetensors'), [weight('a', [1]), weight('x', [1])]);
    editIndex(directory, (map) => {
      map.x = 'extra.safetensors';
    });
    expect(() => openCheckpoint(directory)).toThrow(
      /weight 'a' is in extra\.safetensors and again in model-00001/,
    );
  });
});

describe('matchWeights', () => {
  const open = async (tensors: WeightSource[]) => {
    const directory = temporaryDirectory();
    mkdirSync(directory, { recursive: true });
    await writeSafetensors(join(directory, SINGLE_FILE), tensors);
    return openCheckpoint(directory);
  };

  it('lists every missing and unexpected name', async () => {
    const checkpoint = await open([weight('a', [1]), weight('x', [1]), weight('y', [1])]);
    const expected = ['a', 'b', 'c'].map((name) => ({ name, shape: [1] }));
    expect(() => matchWeights(checkpoint, expected)).toThrow(
      `${checkpoint.directory}: the weights do not fit the model's configuration; missing: 'b', 'c'; unexpected: 'x', 'y'`,
    );
    const many = Array.from({ length: 20 }, (_, i) => ({ name: `w${i}`, shape: [1] }));
    expect(() => matchWeights(checkpoint, many)).toThrow(/'w7' and 12 more; unexpected/);
    checkpoint.close();
  });

  it('returns the weights in the order of the model, without the ignored ones', async () => {
    const checkpoint = await open([weight('a', [1]), weight('b', [1, 2]), weight('x', [1])]);
    const expected = [
      { name: 'b', shape: [2] },
      { name: 'a', shape: [1] },
    ];
    expect(matchWeights(checkpoint, expected, { ignore: (name) => name === 'x' })).toEqual([
      { name: 'b', dtype: 'F32', shape: [2], bytes: 8 },
      { name: 'a', dtype: 'F32', shape: [1], bytes: 4 },
    ]);
    checkpoint.close();
  });

  it('refuses a wrong shape, and integers', async () => {
    const checkpoint = await open([weight('a', [1, 2], [2, 1])]);
    expect(() => matchWeights(checkpoint, [{ name: 'a', shape: [1, 2] }])).toThrow(
      /weight 'a': expected shape \[1,2\], found \[2,1\]/,
    );
    checkpoint.close();
    const mixed = temporaryDirectory();
    copyFileSync(goldenPath('safetensors/mixed.safetensors'), join(mixed, SINGLE_FILE));
    const integers = openCheckpoint(mixed);
    expect(() =>
      matchWeights(integers, [{ name: 'i32', shape: [1] }], { ignore: (name) => name !== 'i32' }),
    ).toThrow(/weight 'i32': expected dtype F32, BF16 or F16, found I32/);
    integers.close();
  });

  it('accepts a tied weight that is stored twice only when both are equal', async () => {
    const tied = { head: 'embed' };
    const expected = [{ name: 'embed', shape: [2] }];
    const equal = await open([weight('embed', [1, 2]), weight('head', [1, 2])]);
    expect(matchWeights(equal, expected, { tied })).toHaveLength(1);
    expect(() => matchWeights(equal, expected)).toThrow(/unexpected: 'head'/);
    equal.close();
    for (const head of [weight('head', [1, 3]), weight('head', [1, 2], [2, 1])]) {
      const different = await open([weight('embed', [1, 2]), head]);
      expect(() => matchWeights(different, expected, { tied })).toThrow(
        /ties 'head' to 'embed', but the two differ; set tie_word_embeddings to false/,
      );
      different.close();
    }
  });

  it('compares large tied weights by parts, to the last byte', () => {
    const bytes = 130 * 2 ** 20;
    const entry = { dtype: 'F32', shape: [bytes / 4], begin: 0, end: bytes } as const;
    const largest = { part: 0 };
    const match = (last: number) =>
      matchWeights(
        {
          directory: 'large',
          tensors: new Map([
            ['embed', entry],
            ['head', entry],
          ]),
          read: () => expect.fail('a whole weight was read'),
          part(name, from, to) {
            largest.part = Math.max(largest.part, to - from);
            const part = new Uint8Array(to - from);
            if (name === 'head' && to === bytes) part[to - from - 1] = last;
            return part;
          },
        },
        [{ name: 'embed', shape: entry.shape }],
        { tied: { head: 'embed' } },
      );
    expect(match(0)).toHaveLength(1);
    expect(() => match(1)).toThrow("ties 'head' to 'embed', but the two differ");
    expect(largest.part).toBe(64 * 2 ** 20);
  });
});
