/** The benchmark of a case on our side. */
import type { Device } from '#src/runtime/device.js';
import type { RivalCase } from '../cases.js';
import { benchAttention } from './attention.js';
import { benchClassify } from './classify.js';
import { benchData } from './data.js';
import { benchEpisodes } from './episodes.js';
import { benchGemm } from './gemm.js';
import { benchGenerate } from './generate.js';
import { benchHead } from './head.js';
import { benchOp } from './kernels.js';
import { benchLinearAttention } from './linear-attention.js';
import { benchRl } from './rl.js';
import { benchScore } from './score.js';
import { benchStep } from './step.js';
import { benchTrainer } from './trainer.js';

/** Seconds of one run, by sample; at least `seconds` of them together. */
export function measure(device: Device, item: RivalCase, seconds: number): Promise<number[]> {
  switch (item.suite) {
    case 'gemm':
      return benchGemm(device, item, seconds);
    case 'attention':
      return benchAttention(device, item, seconds);
    case 'linear-attention':
      return benchLinearAttention(device, item, seconds);
    case 'head':
      return benchHead(device, item, seconds);
    case 'kernels':
      return benchOp(device, item, seconds);
    case 'step':
      return benchStep(device, item, seconds);
    case 'classify':
      return benchClassify(device, item, seconds);
    case 'score':
      return benchScore(device, item, seconds);
    case 'prefill':
    case 'decode':
      return benchGenerate(device, item, seconds);
    case 'rl':
      return benchRl(device, item, seconds);
    case 'episodes':
      return benchEpisodes(device, item, seconds);
    case 'data':
      return benchData(device, item, seconds);
    case 'trainer':
      return benchTrainer(device, item, seconds);
  }
}
