// What a run of self-corrections says of its data before it trains.
import { expect, it } from 'vitest';
import { completeRunConfig } from '../../../src/methods/config.js';
import type { S3cRunConfig } from '../../../src/methods/s3c/config.js';
import { s3cData } from '../../../src/methods/s3c/data.js';
import { loadTokenizer } from '../../../src/tokenizer/load.js';
import { chatModel, TEMPLATE } from '../../generate/chat-model.js';

const OPENS = TEMPLATE.replace("assistant\\n'", "assistant\\n<think>\\n'");

it.each([
  [OPENS, 'auto', true],
  [OPENS, false, false],
  [TEMPLATE, 'auto', false],
] as const)(
  'under %j with chat %s warns of reasoning that steps would stand in: %s',
  async (template, chat, isWarned) => {
    const base = await chatModel(template);
    const config = completeRunConfig({
      method: 's3c',
      model: { base },
      data: { source: 'word_problems', word_problems: { samples: 20, levels: [1] } },
      format: { chat },
    }) as S3cRunConfig;
    const data = await s3cData(config, await loadTokenizer(base), new AbortController().signal);
    const said = data?.summary.warnings.filter((warning) => warning.includes('<think>'));
    expect(said).toEqual(
      isWarned
        ? [
            'the chat template opens <think> before what is learned: without </think> the model learns to answer inside its reasoning; ' +
              'set format.chat to false',
          ]
        : [],
    );
  },
);
