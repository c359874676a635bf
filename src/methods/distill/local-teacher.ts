/** A teacher in this process: the distribution of its next token at each place, over the whole vocabulary. */
import { openSaved } from '../../api/model.js';
import type { ModelConfig } from '../../architectures/config.js';
import { architectureOf, readModelConfig } from '../../architectures/table.js';
import type { Quantize } from '../../models/quantize.js';
import { type SavedModel, savedModel } from '../../models/saved.js';
import { RunError } from '../../run/error.js';
import { resolveSaved } from '../../run/resolve-saved.js';
import { namedTokenizer } from '../../run/tokenizer.js';
import type { Device } from '../../runtime/device.js';
import type { Tensor } from '../../runtime/tensor.js';
import { type ForwardSequence, hiddenStates, type Rows, vocabularyAt } from '../../sequences/forward.js';
import type { Tokenizer } from '../../tokenizer/tokenizer.js';
import { hasTokenizer } from '../../tokenizer/tokenizer-files.js';
import type { DistillConfig } from './config.js';

export interface LocalTeacher {
  /** Whether it reads solutions that branch off one prompt: a sliding window counts tokens in the order of storage. */
  readonly branches: boolean;
  /** Logits over `temperature` at each row, f32 [R, V]. */
  logits(sequences: readonly ForwardSequence[], rows: Rows, temperature: number): Tensor;
  dispose(): void;
}

export interface TeacherOptions {
  readonly dtype: 'f32' | 'bf16';
  readonly quantize: Quantize | undefined;
}

/** The settings of the section `teacher`; its dtype is the student's. */
export const teacherOptions = ({
  model: { dtype },
  teacher: { quantize },
}: Pick<DistillConfig, 'model' | 'teacher'>): TeacherOptions => ({
  dtype,
  quantize: quantize === 'keep' ? undefined : quantize,
});

/** @throws RunError for a teacher with another vocabulary than the student's */
export async function localTeacher(
  device: Device,
  name: string,
  student: { readonly vocabSize: number; readonly tokenizer: Tokenizer },
  options: TeacherOptions,
): Promise<LocalTeacher> {
  const saved = await resolveSaved(name, { locate: () => 'teacher.model' });
  const { vocabSize } = readModelConfig(saved.directory);
  if (vocabSize !== student.vocabSize)
    throw new RunError(
      `teacher.model ${name} has a vocabulary of ${vocabSize} tokens and the student one of ${student.vocabSize}, and all of their tokens are ` +
        'compared; take a teacher of the same vocabulary, or serve this one and name it as teacher.url, which compares sampled tokens alone',
    );
  await checkTokenizer(saved, student);
  const { decoder, role, ...model } = await openedTeacher(device, saved, options);
  return {
    branches: readsBranches(decoder.config),
    logits: (sequences, rows, temperature) =>
      vocabularyAt(hiddenStates(decoder, role, sequences), rows, temperature),
    dispose: () => model.dispose(),
  };
}

export const readsBranches = (config: ModelConfig) =>
  architectureOf(config)
    .keyValues(config)
    .every(({ window }) => window === undefined);

async function openedTeacher(device: Device, saved: SavedModel, { dtype, quantize }: TeacherOptions) {
  const model = await openSaved(device, saved, { dtype, ...(quantize ? { quantize } : {}) });
  const { decoder, role } = model;
  return { decoder, role, dispose: () => model.dispose() };
}

/** A token of another text would be compared with a token of this one. */
async function checkTokenizer(
  { name, tokenizer: directory }: SavedModel,
  { vocabSize, tokenizer }: { readonly vocabSize: number; readonly tokenizer: Tokenizer },
): Promise<void> {
  if (!hasTokenizer(directory)) return;
  const other = await namedTokenizer(directory);
  const most = Math.min(vocabSize, tokenizer.vocabSize, other.vocabSize);
  for (let id = 0; id < most; id++) {
    const [own, theirs] = [tokenizer, other].map((each) => Buffer.from(each.tokenBytes(id)));
    if (own?.equals(theirs as Buffer)) continue;
    throw new RunError(
      `token ${id} is ${JSON.stringify(String(theirs))} to teacher.model ${name} and ${JSON.stringify(String(own))} to the student: they have other ` +
        'tokenizers, so that their distributions are not of the same texts; take a teacher of the same tokenizer',
    );
  }
}

/** Files of a teacher for the memory plan; undefined where it is not here yet. */
export function plannedTeacher({ model, teacher }: Pick<DistillConfig, 'model' | 'teacher'>) {
  if (teacher.model === undefined) return undefined;
  const { dtype } = teacherOptions({ model, teacher });
  try {
    const saved = savedModel(teacher.model);
    readModelConfig(saved.directory);
    const quantize = teacher.quantize === 'keep' ? saved.card?.quantize : teacher.quantize;
    return { ...saved, dtype, card: quantize && { quantize } };
  } catch {
    return undefined;
  }
}
